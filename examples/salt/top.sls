# Which minion gets which states.
base:
  '*':
    - motd
