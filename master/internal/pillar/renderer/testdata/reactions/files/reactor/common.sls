common:
  runner.own.every:
    - tgt: common
