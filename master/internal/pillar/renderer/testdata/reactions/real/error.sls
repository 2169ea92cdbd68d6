complain:
  runner.error.error:
    - name: Exception
    - message: "{{ data['id'] }} has failed"
