"""The command: torchrun's flags and environment become one `JobSpec`, and one agent runs it.

Nothing here decides anything about the job. `entry.main` is the console script and `python -m remuster`; it hands a
body to the keeper, which forks before anything heavy is imported. The body (`cli.run`) goes argv -> `argv.split`
(spelling, abbreviations, where the script begins) -> click -> `build.build` (checks, `JobSpec`) -> the agent.
"""
