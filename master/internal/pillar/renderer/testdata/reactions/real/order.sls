z_first:
  runner.own.every: [{order: 1}, {tgt: first}]
a_last:
  runner.own.every: [{order: last}, {tgt: last}]
m_second:
  runner.own.every:
    - tgt: second
    - require: [{runner: z_first}]
