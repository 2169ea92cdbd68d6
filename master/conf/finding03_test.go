package conf

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFinding03Expressions: a master whose permissions cannot be parsed does not start, and the
// error names all faults at once.
func TestFinding03Expressions(t *testing.T) {
	load := func(text string) error {
		path := filepath.Join(t.TempDir(), "master")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load(path)
		return err
	}

	good := `
nodegroups: {web: 'web*'}
external_auth: {pam: {fred: [test.*, '@runner', '@jobs', '.*', {'web*': [test.ping, {'cmd.run': {args: ['^uptime$', null], kwargs: {cwd: '/tmp.*'}}}]}, {'N@web': [x.y]}, {'N@saved.later': [x.y]}, {'@jobs': [list_jobs, 'list_.*']}], 'admins%': ['.*']}}
publisher_acl: {'fred': [test.ping], 'team-.*': [test.ping], '*': [test.ping], 'a(?!b).*': [x]}
publisher_acl_blacklist: {users: [root, '^(?!sudo_).*$', 'x*'], modules: [cmd.*, '*', 'cmd.[']}
peer: {'.*': [test.ping], 'web1': ['(?=x)y', {'*': [x]}]}
peer_run: {'.*': [manage.up]}
mine_get: {'web.*': [network.*]}
`

	if err := load(good); err != nil {
		t.Errorf("what can be read is refused: %v", err)
	}

	bad := map[string][]string{
		"external_auth": {`{pam: {fred: ['test.(']}}`,
			`{pam: {fred: [{'web1 or (': [test.ping]}]}}`,
			`{pam: {fred: [{'*': [{'cmd.run': {args: ['a[']}}]}]}}`, `{pam: {fred: [{'N@no/group': [x]}]}}`},
		"publisher_acl":           {`{'fr(ed': [x]}`, `{fred: ['x\Q']}`},
		"publisher_acl_blacklist": {`{users: ['(root']}`, `{modules: ['cmd.(']}`},
		"peer":                    {`{'*': [x]}`, `{x: ['*']}`}, "peer_run": {`{x: ['a)|(?:b']}`}, "mine_get": {`{x: ['[']}`},
	}

	all := ""
	for option, texts := range bad {
		for _, text := range texts {
			if err := load(option + ": " + text +
				"\n"); err == nil || !strings.Contains(err.Error(), "option "+option+": expression ") {
				t.Errorf("%s: %s gives %v", option, text, err)
			}
		}
		all += option + ": " + texts[0] + "\n"
	}

	err := load(all)
	for option := range bad {
		if err == nil || !strings.Contains(err.Error(), "option "+option+": ") {
			t.Errorf("together: nothing of %s in %v", option, err)
		}
	}
}
