here:
  caller.test.arg:
    - args: [1, two]
there:
  caller.event.send:
    - args:
      - tag: from/caller
      - data: {a: 1}
