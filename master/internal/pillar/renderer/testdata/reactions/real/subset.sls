batch:
  local.cmd.run:
    - tgt: 'G@os:Debian and not {{ data['id'] }}'
    - expr_form: compound
    - tgt_type: compound
    - timeout: 30
    - arg:
      - uptime
    - kwarg:
        cwd: /
        env: [LC_ALL: C]
