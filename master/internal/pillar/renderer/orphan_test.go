package renderer

import (
	"testing"

	"saltern/master/value"
	"saltern/test/orphan"
)

// TestCommandOfTemplateEndsWithTheMaster kills a process whose template runs a program by cmd.run.
func TestCommandOfTemplateEndsWithTheMaster(t *testing.T) {
	python(t)
	orphan.Check(t, "sleeper", func(path string) {
		p, _ := pool(t, nil, func(c *Config) { c.Env = []string{"PATH=" + path, "HOME=/", "LC_ALL=C.UTF-8"} })
		_, err := render(t, p, "m", value.NewMap(), "a: {{ salt['cmd.run']('sleeper') }}")
		t.Error(err)
	})
}
