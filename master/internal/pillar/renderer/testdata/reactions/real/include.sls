{% include 'reactor/common.sls' %}
own:
  runner.own.every:
    - tgt: {{ grains['id'] }}
    - ret: {{ grains['kernel'] }}
