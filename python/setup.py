"""The wheel holds a built library, so it is for one platform, but for any Python 3 (pyproject.toml has the rest)."""
from setuptools import Distribution, setup
from wheel.bdist_wheel import bdist_wheel


class PlatformDistribution(Distribution):
    def has_ext_modules(self):
        return True


class AnyPythonWheel(bdist_wheel):
    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


setup(distclass=PlatformDistribution, cmdclass={"bdist_wheel": AnyPythonWheel})
