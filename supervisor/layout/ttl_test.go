package layout

import (
	"strings"
	"testing"

	"saltern/supervisor/settings"
)

// TestFinding13RequestsGrowOld: the appliance's masters refuse requests of more
// than ten minutes, unless the administrator says otherwise.
func TestFinding13RequestsGrowOld(t *testing.T) {
	s := settings.Default("n1")
	for given, want := range map[string]string{"": "request_server_ttl: 600\n", "0": "request_server_ttl: 0\n"} {
		if given != "" {
			s.Master.Options = map[string]any{"request_server_ttl": 0}
		} else {
			s.Master.Options = nil
		}
		text, err := MasterConfig(&s, "root", s.UserConfDir())
		if err != nil || strings.Count(string(text), "request_server_ttl") != 1 ||
			!strings.Contains(string(text), want) {
			t.Errorf("%q: %v\n%s", given, err, text)
		}
	}
}
