notify_all:
  local.test.echo:
    - tgt: '*'
    - names:
      - one
      - two:
        - arg: [second]
    - arg: [first]
