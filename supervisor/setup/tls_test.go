package setup

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestFinding19NewClustersEncrypt: a cluster that is formed on a volume encrypts
// its connections, unless one answer says otherwise; a node that joins does as its
// cluster, and other storage has nothing to encrypt.
func TestFinding19NewClustersEncrypt(t *testing.T) {
	no, yes := false, true
	for name, c := range map[string]struct {
		a    Answers
		want any
	}{
		"form":      {Answers{Mode: Form, Storage: Storage{Kind: "volume"}}, true},
		"form, off": {Answers{Mode: Form, Storage: Storage{Kind: "volume", TLS: &no}}, false},
		"form, on":  {Answers{Mode: Form, Storage: Storage{Kind: "volume", TLS: &yes}}, true},
		"form, by settings": {Answers{Mode: Form, Storage: Storage{Kind: "volume"}, Settings: map[string]any{"storage": map[string]any{"tls": false}}},
			false},
		"join":      {Answers{Mode: Join, Storage: Storage{Kind: "volume"}}, nil},
		"directory": {Answers{Mode: Form, Storage: Storage{Kind: "directory", Path: "/srv/x"}}, nil},
	} {
		c.a.Node = "n1"
		c.a.Cluster = "prod"
		c.a.Address = "192.0.2.1"
		c.a.Front = []string{"192.0.2.1"}
		text, err := Render(c.a, Base{})
		if err != nil {
			t.Fatal(err)
		}

		var doc struct {
			Storage map[string]any `yaml:"storage"`
		}
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}

		if got := doc.Storage["tls"]; got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}

		if s, err := (&Preflight{}).settings(c.a); err != nil || s.Storage.TLS != (c.want == true) {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
}
