"""The experiments of the papers behind fedpick's policies, rerun and compared with what was printed.

`studies` has the experiments and `fedpick reproduce`, `theory` the papers' bounds and regrets as functions of arrays,
`oort_testing` the testing selector of Oort. The library imports none of it; this package takes the library by its
public interface.
"""

__all__: list[str] = []
