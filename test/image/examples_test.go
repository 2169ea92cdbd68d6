package image

import (
	"os"
	"testing"

	"saltern/supervisor/setup"
	"saltern/supervisor/userdata"
)

// TestExamples: the answers that the documents show are read as such.
func TestExamples(t *testing.T) {
	for name, mode := range map[string]setup.Mode{"form": setup.Form, "join": setup.Join} {
		text, err := os.ReadFile("../../examples/cloud-init/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		a, err := userdata.Parse(text)
		if err != nil || a.Mode != mode || a.Network.Method != "static" || len(a.Admin.SSHKeys) != 1 {
			t.Errorf("%s: %+v %v", name, a, err)
		}
	}
}
