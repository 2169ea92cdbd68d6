clear_the_grains_cache:
  runner.cache.clear_grains:
    - tgt: {{ data['id'] }}
clear_the_pillar_cache:
  runner.cache.clear_pillar:
    - tgt: {{ data['id'] }}
    - tgt_type: list
up:
  runner.manage.up: [{timeout: 2}, {tgt: 'm*'}]
