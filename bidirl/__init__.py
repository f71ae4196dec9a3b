"""bidirl: which stage should each device of a fixed budget run right now?"""

__version__ = "0.1.0"
