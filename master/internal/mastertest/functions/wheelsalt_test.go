package functions

import (
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"saltern/master/internal/local"
	"saltern/master/internal/mastertest"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// Salt's own wheel functions, on the same folder of keys, say the same of them.
func TestWheelKeysAsSalt(t *testing.T) {
	t.Parallel()
	python := mastertest.SaltPython(t)
	script := `import json, sys, salt.config, salt.wheel
w = salt.wheel.WheelClient(salt.config.master_config(sys.argv[1]))
print("\n" + json.dumps([w.cmd(f, kwarg=k, print_event=False) for f, k in json.loads(sys.argv[2])]))`
	calls := []struct {
		fun   string
		kwarg map[string]any
	}{
		{"key.list_all", map[string]any{}}, {"key.list", map[string]any{"match": "all"}}, {"key.list", map[string]any{"match": "un"}},
		{"key.list", map[string]any{"match": "rej"}}, {"key.list", map[string]any{"match": "nosuch"}},
		{"key.name_match", map[string]any{"match": "*"}}, {"key.name_match", map[string]any{"match": "*1,m*"}}, {"key.glob_match", map[string]any{"match": "nosuch"}},
		{"key.print", map[string]any{"match": "a*"}}, {"key.master_key_str", map[string]any{}}, {"key.finger_master", map[string]any{"hash_type": "md5"}},
	}

	alone := mastertest.Start(t, "")
	for name, r := range map[string]*mastertest.Master{"alone": alone, "cluster": mastertest.StartCluster(t, 1)[0]} {
		folder := r.Parts.Cluster.KeyDir() + "/"
		pub := mastertest.PublicPEM(t, mastertest.KeyPair(t, "min6"))
		for _, id := range []string{"minions/a1", "minions/B2", "minions_pre/p1", "minions_rejected/r1",
			"minions_denied/d1"} {
			check.Must(t, os.WriteFile(folder+id, []byte(pub), 0o644))
		}

		check.Must(t, os.WriteFile(folder+"Old.pub", []byte(pub), 0o644))
		check.Must(t, os.WriteFile(folder+"notes.txt", nil, 0o644))
		check.Must(t, os.Symlink("Old.pub", folder+"link.pub"))
		if name == "alone" { // as Salt 3008 leaves them; in a cluster it shows another key than minions know
			check.Must(t, os.Symlink("m1.pub", folder+"master.pub"))
			check.Must(t, os.Symlink("m1.pem", folder+"master.pem"))
		}

		await.That(t, "the keys", func() bool { return len(r.Parts.Keys.Accepted()) == 2 })
		var ask [][]any
		for _, c := range calls {
			if name == "alone" || c.fun != "key.finger_master" {
				ask = append(ask, []any{c.fun, c.kwarg})
			}
		}

		text, err := json.Marshal(ask)
		check.Must(t, err)
		cmd := exec.Command(python, "-c", script, r.Path("master"), string(text))
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}

		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		var want []any
		check.Must(t, json.Unmarshal([]byte(lines[len(lines)-1]), &want))
		for i, c := range ask {
			load := []any{"fun", c[0], "key", r.Key, "user", local.CurrentUser()}
			for k, v := range c[1].(map[string]any) {
				load = append(load, k, v)
			}

			got, _ := r.AskInClear("wheel", load...).(*value.Map).Map("data").Get("return")
			if got := throughJSON(t, got); !reflect.DeepEqual(got, want[i]) {
				t.Errorf("%s: %v:\n%v\nSalt:\n%v", name, c, got, want[i])
			}
		}
	}
}

// throughJSON is what a program gets that reads JSON.
func throughJSON(t *testing.T, v any) (out any) {
	t.Helper()
	b, err := json.Marshal(mastertest.AsIndexed(v))
	check.Must(t, err)
	check.Must(t, json.Unmarshal(b, &out))
	return out
}
