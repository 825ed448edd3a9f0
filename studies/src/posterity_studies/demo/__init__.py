"""The main job in small: a prior learned on one task and used on the next, compared with three other methods.

`methods` are the four contenders, `cells` tune and test them on a few images, `page` shows the results.
"""

from posterity_studies.demo.declaration import demo, recipe
from posterity_studies.demo.page import page
from posterity_studies.demo.reading import on_temperature, verdict
from posterity_studies.demo.showing import KEY

__all__ = ["KEY", "demo", "on_temperature", "page", "recipe", "verdict"]
