//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/lab"
)

// vault answers as Vault does for one secret of a key-value store of version 2.
type vault struct {
	mu    sync.Mutex
	asked []string
}

func (v *vault) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	v.asked = append(v.asked, r.Method+" "+r.URL.Path)
	v.mu.Unlock()

	if token := r.Header.Get("X-Vault-Token"); token != "a-token" && token != "of-the-minion" {
		http.Error(w, `{"errors":["permission denied"]}`, http.StatusForbidden)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	if r.URL.Path == "/v1/auth/token/create" {
		_ = json.NewEncoder(w).Encode(map[string]any{"auth": map[string]any{
			"client_token":   "of-the-minion",
			"accessor":       "y",
			"policies":       []string{"salt"},
			"token_policies": []string{"salt"},
			"metadata":       map[string]string{},
			"lease_duration": 3600,
			"renewable":      true,
			"entity_id":      "",
			"token_type":     "service",
			"orphan":         false,
			"num_uses":       0,
		}})

		return
	}

	var answer map[string]any
	switch r.URL.Path {
	case "/v1/auth/token/lookup-self":
		answer = map[string]any{
			"id":               "a-token",
			"accessor":         "x",
			"ttl":              0,
			"explicit_max_ttl": 0,
			"expire_time":      nil,
			"creation_time":    1700000000,
			"creation_ttl":     0,
			"issue_time":       "2024-01-01T00:00:00Z",
			"num_uses":         0,
			"orphan":           true,
			"renewable":        false,
			"policies":         []string{"salt"},
			"type":             "service",
		}
	case "/v1/sys/internal/ui/mounts/secret/salt":
		answer = map[string]any{
			"path":    "secret/",
			"type":    "kv",
			"uuid":    "u",
			"options": map[string]string{"version": "2"},
		}
	case "/v1/secret/data/salt":
		answer = map[string]any{
			"data":     map[string]string{"db_password": "correct horse"},
			"metadata": map[string]any{"version": 1},
		}
	default:
		http.Error(w, `{"errors":[]}`, http.StatusNotFound)
		return
	}

	_ = json.NewEncoder(w).Encode(map[string]any{"data": answer})
}

// TestVaultPillar: saltext.vault from the index gives a pillar out of Vault (what it
// asks for is imitated). Without SALTERN_TEST_INDEX nothing is downloaded.
func TestVaultPillar(t *testing.T) {
	if lab.Peer() || os.Getenv("SALTERN_TEST_INDEX") == "" {
		t.Skip("NOT TESTED: set SALTERN_TEST_INDEX=1 to use the index that pip is configured for")
	}

	t.Parallel()
	v := &vault{}
	server := httptest.NewServer(v)
	t.Cleanup(server.Close)
	n := lab.StartNode(t, lab.NodeConfig{Options: map[string]any{
		"vault": map[string]any{
			"server": map[string]any{"url": server.URL},
			"auth":   map[string]any{"method": "token", "token": "a-token"},
			"issue":  map[string]any{"type": "token", "wrap": false},
		},
		"ext_pillar": []any{map[string]any{"vault": "secret/salt"}},
	}})

	accepted(t, n, "web1", lab.Newest)
	r := lab.Run(t, 5*time.Minute, lab.Bin(t, "applianced"), "--config", n.Dir+"/appliance.yaml", "python",
		"add", "--yes", "saltext.vault")
	if r.Code != 0 {
		t.Fatalf("add: %+v", r)
	}

	t.Log(r.Out)
	lab.Eventually(t, 15*time.Second, "the pillar", func() error {
		r := n.SaltRun(t, "pillar.show_pillar", "web1", "--out=json")
		if !strings.Contains(r.Out, "correct horse") {
			v.mu.Lock()
			defer v.mu.Unlock()
			return fmt.Errorf("%+v; asked %v", r, v.asked)
		}
		return nil
	})

	t.Log(v.asked)
}
