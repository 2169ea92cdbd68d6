package supervisor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

// TestEmptyConfigurationIsRefused: a configuration without any setting, as a failed upload leaves one,
// does not replace the node's.
func TestEmptyConfigurationIsRefused(t *testing.T) {
	r, _ := newRun(t)
	r.write(map[string]any{"node": "a b"})
	r.start()
	r.until("wrong", func(d status.Document) bool { return shows(d, status.ConfigWrong, `"a b"`) })
	before, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}

	for _, text := range []string{"", "\n", "# node: n1\n", "---\n", "{}\n"} {
		for what, try := range map[string]func(context.Context, []byte) error{
			"set": r.client.SetConfig, "check": r.client.CheckConfig,
		} {
			if err := try(t.Context(), []byte(text)); !errors.Is(err, api.ErrConfig) ||
				!strings.Contains(err.Error(), "applianced reset") {
				t.Errorf("%s %q: %v", what, text, err)
			}
		}
	}

	if now, err := os.ReadFile(r.path); err != nil || string(now) != string(before) {
		t.Errorf("the file was replaced: %q, %v", now, err)
	}
}
