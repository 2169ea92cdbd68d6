invoke_orchestrate_file:
  runner.state.orchestrate:
    - args:
      - mods: orch.do_complex_thing
      - pillar:
          event_tag: {{ tag }}
          event_data: {{ data | json }}
orchestrate_old:
  runner.state.orchestrate:
    - mods: orch.x
    - saltenv: base
    - pillar: {a: {{ data['id'] | json }}}
