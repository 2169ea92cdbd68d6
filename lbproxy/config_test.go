package lbproxy

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"

	"saltern/internal/onedoc"
)

func TestLoadConfig(t *testing.T) {
	cfg, err := LoadConfig("testdata/lb.yaml")
	if err != nil {
		t.Fatal(err)
	}

	req := cfg.Frontends[1]
	if req.Idle != time.Hour || req.Outstanding != 15*time.Minute || req.Burst != 2000 ||
		req.Balance != leastConn || cfg.Frontends[0].Idle != 0 {
		t.Errorf("%+v", cfg.Frontends)
	}

	if cfg.Backends[0].Weight != 100 || cfg.Backends[1].Weight != 50 || !cfg.Backends[1].ProxyV2 {
		t.Errorf("%+v", cfg.Backends)
	}

	if cfg.Health.Check != CheckPing || cfg.Connect.Hedge != 250*time.Millisecond || cfg.Admin.Mode != 0o600 {
		t.Errorf("%+v", cfg)
	}

	// What a program writes can be read again.
	b, err := yaml.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}

	again, err := ParseConfig(b)
	if err != nil {
		t.Fatal(err)
	}

	if c, _ := yaml.Marshal(again); string(c) != string(b) {
		t.Errorf("changed on the way:\n%s\n%s", b, c)
	}
}

func TestConfigJSON(t *testing.T) {
	cfg, err := ParseConfig([]byte(`{"frontends": [{"name": "r", "mode": "request", "bind": ["127.0.0.1:4506"],
		"allow": ["10.0.0.0/8", "fd00::/8"]}], "connect": {"hedge": "-1s"}}`))
	if err != nil || len(cfg.Frontends[0].Allow) != 2 || cfg.Connect.Hedge >= 0 {
		t.Errorf("%+v, %v", cfg, err)
	}
}

// TestConfigFaults: every fault of the file is in the one answer.
// TestSecondDocumentOfAConfiguration: what follows the configuration is not ignored.
func TestSecondDocumentOfAConfiguration(t *testing.T) {
	good, err := os.ReadFile("testdata/lb.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseConfig(good); err != nil {
		t.Fatal(err)
	}
	for _, more := range []string{"\n---\nbackends: []\n", "\n---\nadmin: {socket: /x}\n"} {
		if _, err := ParseConfig(append(good[:len(good):len(good)], more...)); !errors.Is(err, onedoc.ErrMore) {
			t.Errorf("%q: %v", more, err)
		}
	}
}

func TestConfigFaults(t *testing.T) {
	_, err := LoadConfig("testdata/bad.yaml")
	var all *multierror.Error
	if !errors.As(err, &all) {
		t.Fatalf("%T: %v", err, err)
	}

	for _, want := range []string{
		"field colour not found",
		"frontends[0]: idle: a publish frontend must not have an idle limit",
		`frontends[1]: name "publish" is used twice`,
		`frontends[1]: mode "both" is none of publish, request, api`,
		`frontends[1]: bind "0.0.0.0:4505" is already used by frontends[0]`,
		`frontends[1]: bind "localhost:1"`,
		`frontends[1]: balance "sources"`,
		`frontends[2]: name "bad name" is not a plain word`,
		"frontends[2]: bind: at least one address is needed",
		`backends[0]: address "node1.example.org" is not an IP address`,
		"backends[0]: weight 2000 is not within 1 to 1000",
		`backends[1]: name "node1" is used twice`,
		"backends[1]: publish_port 70000 is not within 1 to 65535",
		`health: check "http" is none of`,
		"health: rise and fall must be at least 1",
		`log: sessions "some"`,
		`admin: metrics "0.0.0.0:9100" is not a loopback address`,
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("missing: %s", want)
		}
	}

	if n := len(all.Errors); n != 17 {
		t.Errorf("%d faults:\n%v", n, err)
	}
}

func TestConfigNotReadable(t *testing.T) {
	for name, b := range map[string]string{
		"empty":    "",
		"a list":   "- a",
		"not YAML": "a: [",
		"too long": strings.Repeat("#", maxConfigSize+1),
	} {
		if _, err := ParseConfig([]byte(b)); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if _, err := LoadConfig("testdata/none.yaml"); err == nil {
		t.Error("a missing file is taken")
	}
}

func FuzzConfig(f *testing.F) {
	f.Add([]byte("frontends: [{name: a, mode: publish, bind: ['127.0.0.1:1']}]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		cfg, err := ParseConfig(b)
		if err != nil {
			return
		}
		if _, err := New(cfg, nil); err != nil {
			t.Fatalf("valid, and refused by New: %v", err)
		}
	})
}
