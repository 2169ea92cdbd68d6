package imds

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// service is one that gives these texts for paths below meta-data/iam/security-credentials/.
func service(t *testing.T, texts map[string]string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch text, ok := texts[strings.TrimPrefix(r.URL.Path, "/latest/meta-data/iam/security-credentials/")]; {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" &&
			r.Header.Get("X-Aws-Ec2-Metadata-Token-Ttl-Seconds") != "":
			_, _ = io.WriteString(w, texts["token"])
		case r.Method != http.MethodGet || r.Header.Get("X-Aws-Ec2-Metadata-Token") != "secret":
			w.WriteHeader(http.StatusUnauthorized)
		case ok:
			_, _ = io.WriteString(w, text)
		default:
			http.NotFound(w, r)
		}
	}))

	t.Cleanup(srv.Close)
	return srv.URL
}

func TestRoleKeys(t *testing.T) {
	until := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	keys := fmt.Sprintf(`{"Code": "Success", "AccessKeyId": "ASIAEXAMPLE", "SecretAccessKey": "s", "Token": "t", "Expiration": %q}`,
		until.Format(time.RFC3339))
	got, err := RoleKeys(t.Context(),
		service(t, map[string]string{"token": "secret", "": "backups\n", "backups": keys}))
	if err != nil || got != (Keys{"ASIAEXAMPLE", "s", "t", until}) {
		t.Errorf("%+v %v", got, err)
	}

	for name, c := range map[string]struct {
		texts map[string]string
		want  string
	}{
		"no token":      {map[string]string{}, "gives no token"},
		"another token": {map[string]string{"token": "x", "": "backups"}, "answers 401"},
		"no role":       {map[string]string{"token": "secret"}, "give it an instance profile"},
		"an empty role": {map[string]string{"token": "secret", "": "\n"}, "give it an instance profile"},
		"a hostile role": {map[string]string{"token": "secret", "": "../../user-data"},
			`gives "../../user-data" for the machine's role`},
		"no keys": {map[string]string{"token": "secret", "": "backups"},
			"ask for the keys of role backups: there are none"},
		"no JSON": {map[string]string{"token": "secret", "": "backups", "backups": "<html>"},
			"ask for the keys of role backups: invalid"},
		"half": {map[string]string{"token": "secret", "": "backups", "backups": `{"AccessKeyId": "A"}`},
			"not complete"},
		"endless": {map[string]string{"token": "secret", "": "backups", "backups": strings.Repeat(" ", 1<<20) + keys},
			"too large"},
	} {
		if k, err := RoleKeys(t.Context(), service(t, c.texts)); err == nil ||
			!strings.Contains(err.Error(), c.want) || k != (Keys{}) {
			t.Errorf("%s: %+v %v, want %q", name, k, err, c.want)
		}
	}
}
