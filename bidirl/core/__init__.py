"""The vocabulary and the contracts of bidirl, the coordinator and the scheduler: standard library and numpy only."""
