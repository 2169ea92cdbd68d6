highstate_run:
  cmd.state.apply:
    - tgt: {{ data['id'] }}
    - kwarg: {queue: True}
