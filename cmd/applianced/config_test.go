package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-multierror"

	"saltern/supervisor/nodeapi"
)

// configCheck runs `applianced config check` and gives what it prints and its
// faults, with the folder called DIR.
func configCheck(t *testing.T, dir string, args ...string) (out string, faults []string) {
	t.Helper()
	var b bytes.Buffer
	cmd := rootCommand()
	cmd.SetOut(&b)
	cmd.SetErr(&b)
	cmd.SetArgs(append([]string{"config", "check"}, args...))
	err := cmd.ExecuteContext(t.Context())
	if many, ok := err.(*multierror.Error); ok {
		for _, e := range many.Errors {
			faults = append(faults, strings.ReplaceAll(e.Error(), dir, "DIR"))
		}
	} else if err != nil {
		faults = []string{strings.ReplaceAll(err.Error(), dir, "DIR")}
	}

	return strings.ReplaceAll(b.String(), dir, "DIR"), faults
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file with options that the master refuses is not right: they are checked by
// the master's own code, all at once, each with its file and line.
func TestConfigCheckKnowsTheMastersOptions(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "appliance.yaml")
	head := "node: n1\ndata_dir: " + dir + "/data\nruntime_dir: " + dir + "/run\nmaster:\n  options:\n"
	put(t, path,
		head+"    timeout: 15s\n    fileserver_backend: [svn]\n    worker_threads: 9\n    publisher_acl: {anna: ['*']}\n")
	own := filepath.Join(dir, "data/cluster/etc/master.d")
	put(t, filepath.Join(own, "a.conf"), "hash_type: md4\nret_port: 1\n")
	put(t, filepath.Join(own, "b.conf"), "a: b: c\n")
	out, faults := configCheck(t, dir, path)
	want := []string{
		"DIR/data/cluster/etc/master.d/a.conf:2: ret_port: is set by the appliance and must not be given here",
		`DIR/appliance.yaml:6: option timeout: expected a number, found the text "15s"`,
		`DIR/appliance.yaml:7: option fileserver_backend: this master does not serve files from "svn"`,
		`DIR/appliance.yaml:9: option publisher_acl: `,
		`DIR/data/cluster/etc/master.d/a.conf:1: option hash_type: "md4" is not one of`,
		"DIR/data/cluster/etc/master.d/b.conf:1: mapping values are not allowed in this context",
	}
	if strings.Contains(out, "is right") || len(faults) != len(want) {
		t.Fatalf("%q\n%s\nwant:\n%s", out, strings.Join(faults, "\n"), strings.Join(want, "\n"))
	}

	for i, f := range faults {
		if !strings.HasPrefix(f, want[i]) {
			t.Errorf("fault %d: %s\nwant %s", i, f, want[i])
		}
	}

	for _, f := range []string{"a.conf", "b.conf"} {
		if err := os.Remove(filepath.Join(own, f)); err != nil {
			t.Fatal(err)
		}
	}

	put(t, filepath.Join(own, "a.conf"), "cache: redis\n")
	put(t, path, head+"    timeout: 15\n    worker_threads: 9\n")
	out, faults = configCheck(t, dir, path)
	if want := "DIR/appliance.yaml is right: node n1, cluster saltern, data in DIR/data\n" +
		"note: DIR/appliance.yaml:7: option worker_threads: option is not used by this master: requests share one bounded pool\n" +
		"warning: DIR/data/cluster/etc/master.d/a.conf:1: option cache: option is not used by this master: minion data is kept in files as by localfs\n"; out != want || faults != nil {
		t.Errorf("%s%q\nwant:\n%s", out, faults, want)
	}
}

// What salt-api would refuse is named as well, where it is to be served.
func TestConfigCheckKnowsTheAPI(t *testing.T) {
	for _, c := range []struct{ enabled, section, want string }{
		{"true", "{}", ""},
		{"true", "{port: none, thread_pool: -1}",
			"rest_cherrypy: port must be a number | rest_cherrypy: thread_pool must be"},
		{"true", "{ssl_crt: /nothing/crt, ssl_key: /nothing/key}", "/nothing/crt"},
		{"true", "{ssl_crt: /nothing/crt}", "ssl_key are needed"},
		{"false", "{port: none}", ""},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "appliance.yaml")
		put(t, path, "node: n1\ndata_dir: "+dir+"/data\nruntime_dir: "+dir+"/run\napi: {enabled: "+c.enabled+"}\n")
		put(t, filepath.Join(dir, "data/cluster/etc/master.d/a.conf"), "rest_cherrypy: "+c.section+"\n")
		_, faults := configCheck(t, dir, path)
		want := strings.Split(c.want, " | ")
		if c.want == "" {
			want = nil
		}

		if len(faults) != len(want) {
			t.Errorf("%+v: %q", c, faults)
			continue
		}

		for i, w := range want {
			if !strings.Contains(faults[i], w) {
				t.Errorf("%+v: %q, want %q", c, faults[i], w)
			}
		}
	}
}

// What a hasty hand writes is named, with its line, wherever it is written; for
// machines as well.
func TestConfigCheckNamesWrongValues(t *testing.T) {
	const options = "timeout: soon\ntransport: tcp\nfileserver_backend: [nosuch]\n"
	dir := t.TempDir()
	path := filepath.Join(dir, "appliance.yaml")
	head := "node: n1\ndata_dir: " + dir + "/data\nruntime_dir: " + dir + "/run\n"
	own := filepath.Join(dir, "data/cluster/etc/master.d/a.conf")
	put(t, path, head)
	put(t, own, options)
	want := []string{"DIR/data/cluster/etc/master.d/a.conf:2: transport: is set by the appliance",
		`DIR/data/cluster/etc/master.d/a.conf:1: option timeout: expected a number, found the text "soon"`,
		`DIR/data/cluster/etc/master.d/a.conf:2: option transport: "tcp"`,
		`DIR/data/cluster/etc/master.d/a.conf:3: option fileserver_backend: this master does not serve files from "nosuch"`}

	names := func(what string, got []string, want ...string) {
		t.Helper()
		for i := range max(len(got), len(want)) {
			if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
				return
			}
		}
	}

	_, faults := configCheck(t, dir, path)
	names("in etc/master.d", faults, want...)

	out, _ := configCheck(t, dir, path, "--json")
	var found struct {
		Faults []struct {
			File, Option, Text string
			Line               int
		}
	}

	if err := json.Unmarshal([]byte(out), &found); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	faults = nil
	for _, f := range found.Faults {
		if f.File != "DIR/data/cluster/etc/master.d/a.conf" || f.Line == 0 || f.Option == "" {
			t.Errorf("%+v", f)
		}
		faults = append(faults, f.Text)
	}

	names("in JSON", faults, want...)

	if err := os.Remove(own); err != nil {
		t.Fatal(err)
	}

	put(t, path, head+"master:\n  options:\n    timeout: soon\n    fileserver_backend: [nosuch]\n")
	_, faults = configCheck(t, dir, path)
	names("in appliance.yaml", faults, `DIR/appliance.yaml:6: option timeout: expected a number, found the text "soon"`,
		`DIR/appliance.yaml:7: option fileserver_backend: this master does not serve files from "nosuch"`)
	put(t, path, head+"master: {options: {transport: tcp}}\n")
	_, faults = configCheck(t, dir, path)
	names("what the appliance sets", faults, "DIR/appliance.yaml: master.options: transport is set by the appliance")

	if out, faults := configCheck(t, dir, path, "--json"); len(faults) != 1 ||
		!strings.Contains(out, "master.options") {
		t.Errorf("%s %q", out, faults)
	}
}

// Answers carry options, too, in three forms of the file.
func TestConfigCheckKnowsTheOptionsOfAnswers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "answers.yaml")
	const head = "mode: form\ncluster_id: prod\nnode: n1\naddress: 192.0.2.10\nstorage: {kind: local}\nsettings:\n  master:\n    options:\n"
	for name, c := range map[string]struct{ text, line string }{
		"plain": {head + "      nodegroups: x\n      publish_signing_algorithm: none\n", "9 10"},
		"ours":  {"#saltern\n" + head + "      nodegroups: x\n      publish_signing_algorithm: none\n", "10 11"},
		"cloud-config": {"#cloud-config\nsaltern:\n  " + strings.ReplaceAll(head, "\n", "\n  ") + "      nodegroups: x\n        publish_signing_algorithm: none\n",
			"11 12"},
	} {
		put(t, path, c.text)
		out, faults := configCheck(t, dir, path)
		first, second, _ := strings.Cut(c.line, " ")
		if len(faults) != 2 || !strings.HasPrefix(faults[0],
			"DIR/answers.yaml:"+first+": option nodegroups: expected a map") ||
			!strings.HasPrefix(faults[1], "DIR/answers.yaml:"+second+": option publish_signing_algorithm: ") {
			t.Errorf("%s: %q\n%s", name, out, strings.Join(faults, "\n"))
		}
	}

	put(t, path, head+"      timeout: 9\n")
	if out, faults := configCheck(t, dir, path); out != "DIR/answers.yaml is right: answers to form cluster prod\n" || faults != nil {
		t.Errorf("%q %q", out, faults)
	}
}

// TestConfigCheckComparesWithTheTable: the node's own file is compared with the table of
// nodes on its disk; another file may be that of another node (F9).
func TestConfigCheckComparesWithTheTable(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "appliance.yaml")
	other := filepath.Join(dir, "of-another-node.yaml")
	text := "node: salt-three\ncluster: other\ndata_dir: " + dir + "/data\nruntime_dir: " + dir +
		"/run\npeering: {enabled: true, address: 127.0.70.3}\nmaster: {address: 127.0.70.3}\n"
	put(t, own, text)
	put(t, other, text)

	if err := os.MkdirAll(dir+"/data/node", 0o700); err != nil {
		t.Fatal(err)
	}

	id, err := nodeapi.LoadIdentity(dir + "/data/node")
	if err != nil {
		t.Fatal(err)
	}

	put(t, dir+"/data/nodes.json", `{"version":1,"cluster":"lab","keyHash":"`+strings.Repeat("ab", 32)+`","nodes":[
		{"name":"n3","address":"127.0.70.3","state":"member","certificate":"`+id.Hash+`","storage":"client"}]}`)

	for _, args := range [][]string{{"--config", own}, {"--config", own, own}} {
		out, faults := configCheck(t, dir, args...)
		if len(faults) != 2 || !strings.HasPrefix(faults[0],
			"DIR/appliance.yaml: node: salt-three is not what the table of nodes has for this node, n3; write node: n3.") ||
			!strings.HasPrefix(faults[1],
				"DIR/appliance.yaml: cluster: other is not what the table of nodes has for this node, lab") {
			t.Errorf("%q %q", out, faults)
		}
	}

	if out, faults := configCheck(t, dir, "--config", own, other); faults != nil {
		t.Errorf("another file: %q %q", out, faults)
	}
}

// What config check refuses neither a reload nor a set-up begins with.
func TestWrongOptionsChangeNothing(t *testing.T) {
	dir := t.TempDir()
	path, socket := filepath.Join(dir, "appliance.yaml"), filepath.Join(dir, "none.sock")
	put(t, path, "node: n1\ndata_dir: "+dir+"/data\nruntime_dir: "+dir+"/run\nmaster: {options: {timeout: 15s}}\n")
	answers := filepath.Join(dir, "answers.yaml")
	put(t, answers,
		"mode: form\ncluster_id: prod\nnode: n1\naddress: 192.0.2.10\nstorage: {kind: local}\nsettings: {master: {options: {timeout: 15s}}}\n")

	for _, args := range [][]string{{"reload"}, {"setup", "start", answers}} {
		cmd := rootCommand()
		cmd.SetArgs(append([]string{"--config", path, "--socket", socket}, args...))
		err := cmd.ExecuteContext(t.Context())
		if err == nil || !strings.Contains(err.Error(), "option timeout: expected a number") {
			t.Errorf("%q: %v", args, err)
		}
	}

	put(t, path, "node: n1\ndata_dir: "+dir+"/data\nruntime_dir: "+dir+"/run\n")
	cmd := rootCommand()
	cmd.SetArgs([]string{"--config", path, "--socket", socket, "reload"})
	if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "none.sock") {
		t.Errorf("right options: %v", err)
	}
}

// TestConfigCheckReadsWhatTheSetupReads: answers with a byte order mark, or in a
// packing of user-data, are no appliance.yaml (F11).
func TestConfigCheckReadsWhatTheSetupReads(t *testing.T) {
	const answers = "mode: form\ncluster_id: prod\nnode: n1\naddress: 192.0.2.10\nstorage: {kind: local}\nsettings: {master: {options: {timeout: 15}}}\n"
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("Content-Type: multipart/mixed; boundary=b\nMIME-Version: 1.0\n\n--b\nContent-Type: text/plain\n\n#saltern\n" + answers + "\n--b--\n")); err != nil {
		t.Fatal(err)
	}

	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		"mark":   "\xef\xbb\xbf" + answers,
		"packed": packed.String(),
		"plain":  answers,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "answers")
			put(t, path, text)
			if out, faults := configCheck(t, dir, path); out != "DIR/answers is right: answers to form cluster prod\n" || faults != nil {
				t.Errorf("%s %q", out, faults)
			}
		})
	}
}
