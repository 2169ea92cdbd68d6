//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/check"
	"saltern/test/lab"
)

// effectModule puts a filter that reads a file in the place of one of Salt's that only computes, and
// says that it is Salt's. Jinja computes such a filter while it makes the code of a template, so that
// kept code holds what the file was.
const effectModule = `
from salt.utils.decorators.jinja import JinjaFilter
def _read(path):
    with open(path) as file:
        return file.read()
_read.__module__ = "salt.utils.stringutils"
def load():
    if not hasattr(JinjaFilter, "replaced"):
        JinjaFilter.replaced = True
        JinjaFilter.salt_jinja_filters["to_snake_case"] = _read
    return "loaded"
`

// TestPillarCheckSetsFileAside: a file of pillars whose kept code gives an old value is found by a check,
// named in applianced status without the value, and rendered as Salt does from then on. All other values
// stay in the pillar all the while.
func TestPillarCheckSetsFileAside(t *testing.T) {
	t.Parallel()
	dir := lab.Dir(t)
	modules, file := filepath.Join(dir, "ext"), filepath.Join(dir, "file")
	check.Must(t, os.MkdirAll(filepath.Join(modules, "modules"), 0o755))
	check.Must(t, os.WriteFile(filepath.Join(modules, "modules", "effect.py"), []byte(effectModule), 0o644))
	write := func(text string) { check.Must(t, os.WriteFile(file, []byte(text), 0o644)) }
	write("FIRST")

	n := lab.StartNode(t, lab.NodeConfig{
		Options: map[string]any{"auto_accept": true, "saltern_pillar_check": 1, "extension_modules": modules},
		Pillar: map[string]string{
			"top.sls":    "base:\n  '*': [before, effect, after]\n",
			"before.sls": "before: {{ salt['effect.load']() }}\n",
			"effect.sls": "effect: {{ '" + file + "'|to_snake_case }}\n",
			"after.sls":  "after: {{ grains.id }}\n",
		},
	})
	lab.StartMinion(t, n, "web1", "3007.15", nil) // pillar.items of 3008 masks values
	n.Ping(t, time.Minute, "web1")

	pillar := func(effect string) error {
		answers, err := n.JSON(t, "web1", "pillar.items")
		if err != nil {
			return err
		}
		got, _ := answers["web1"].(map[string]any)
		want := map[string]any{"before": "loaded", "effect": effect, "after": "web1"}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the pillar is %v, want %v", got, want)
		}
		return nil
	}
	isNamed := func() (bool, error) {
		d, err := n.Status(t)
		if err != nil {
			return false, err
		}
		for _, p := range d.Problems {
			if p.Code == status.PillarCheck {
				return strings.Contains(p.Cause, "effect.sls gives other values"), nil
			}
		}
		return false, nil
	}

	lab.Eventually(t, time.Minute, "a pillar of the filter", func() error { return pillar("FIRST") })
	check.Must(t, pillar("FIRST")) // by kept code
	if named, err := isNamed(); named || err != nil {
		t.Fatalf("status names the file: %v, %v", named, err)
	}

	write("SECOND")
	lab.Eventually(t, 90*time.Second, "the file in status", func() error {
		// Kept code still has the first value, until a check has come.
		if first, second := pillar("FIRST"), pillar("SECOND"); first != nil && second != nil {
			t.Fatalf("%v; %v", first, second)
		}
		named, err := isNamed()
		if err == nil && !named {
			err = errors.New("it is not named")
		}
		return err
	})
	check.Must(t, pillar("SECOND"))
	write("THIRD")
	check.Must(t, pillar("THIRD"))

	text := n.Applianced(t, "status").Out
	t.Log(text)
	for _, value := range []string{"FIRST", "SECOND", "THIRD"} {
		if strings.Contains(text, value) {
			t.Errorf("status shows the value %s", value)
		}
	}
	if !strings.Contains(text, string(status.PillarCheck)) {
		t.Errorf("status has no %s", status.PillarCheck)
	}
}
