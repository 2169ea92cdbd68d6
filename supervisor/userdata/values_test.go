package userdata

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
)

// oddValues are texts that a second parser would change: those that people have
// typed into properties, and generated ones of the same kinds.
func oddValues(n int) []string {
	values := []string{
		"#Hash-first-42", "&Amp-first-42", "!Bang-first-42", "~", "null", "Null", "NULL", "2024-12-31", "2024-12-31T10:00:00Z", "12:30:45", "190:20:30",
		"1234567890123456789012", "12345678.", "1_000_000_0", "+12345678", "0123456701234567", "0047110415201642735", "0x1f2e3d4c5b6a7988", "0o17", "0b101", "1e3", ".5", ".inf", ".nan",
		"'single'", `"double"`, "key: value", "- dash first", "{curly}", "[square]", "x:", "Summer #2024!", "true", "yes", "no", "on", "off", "y", "n", "=", "<<", "%TAG", "@at", "`tick`",
		"*alias", "&anchor", "|", ">", "|-", "? key", "a\tb", "trailing  ", "  leading", "umläut-Straße", "日本語のパスワード", "emoji-😀", "x\u2028y", "x\u0085y", "nbsp\u00a0x", "\ufeffbom",
		"50%25off", "100%", "%41", "%zz", "a+b", "&amp;", "&#65;", "<![CDATA[x]]>", "</Property>", `back\slash`, `\n`, "$HOME", "${x}", "$(id)", "{{ x }}", "{% x %}", "a,b;c", "com,ma", "dXNlcg==", "mode: form",
		"new\nline", "carriage\rreturn", "crlf\r\nx", "nul\x00byte", "bell\x07", "latin1-\xe4", "---", "...", "%YAML 1.1", strings.Repeat("4 KiB ", 683), strings.Repeat("0", 4096),
	}

	r := rand.New(rand.NewPCG(20, 26))
	pieces := []string{"0", "7", "42", "00", "-", "+", ".", "_", "e", "x", "0x", ":", ": ", " #", "#", "&",
		"!", "~", "*", "'", `"`, ",", ", ", "{", "}", "[", "]", "%", "%20", "|", ">", "?", "@", "`",
		" ", "  ", "\t", "ä", "ß", "é", "null", "true", "no", "&lt;", "&#x0;", `\`, "/", "=", "<", "\u2029", "😀", "\x01", "\x7f", "\x00", "\xc3"}
	for len(values) < n {
		var b strings.Builder
		for range 1 + r.IntN(12) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		values = append(values, b.String())
	}

	return values
}

// way is one way in: it gives the answer key the value, and what was found.
type way struct {
	name string
	give func(t *testing.T, key, value string) (setup.Given, error)
}

func look(t *testing.T, p Places) (setup.Given, error) {
	t.Helper()
	p.Log = quiet()
	return p.Look(t.Context())
}

// ways are all ways in for a text answer.
func ways(dir string) []way {
	write := func(t *testing.T, name string, text []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	document := func(t *testing.T, key, value string) []byte {
		t.Helper()
		var doc any = value
		path := strings.Split(key, ".")
		for _, name := range slices.Backward(path) {
			doc = map[string]any{name: doc}
		}

		if len(path) > 1 { // a text without any key of ours alone is somebody else's
			doc.(map[string]any)["cluster_id"] = "blue"
		}

		text, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}

		return text
	}

	return []way{
		{"OVF property", func(t *testing.T, key, value string) (setup.Given, error) {
			return look(t,
				Places{OVF: filepath.Dir(write(t, "ovf-env.xml",
					ovfEnvironment(strings.Replace(key, ".", "_", 1), value)))})
		}},
		{"kernel command line", func(t *testing.T, key, value string) (setup.Given, error) {
			return look(t,
				Places{CommandLine: write(t, "cmdline",
					[]byte("quiet saltern.set="+key+":"+strings.ReplaceAll(url.QueryEscape(value), "+", "%20")+"\n"))})
		}},
		{"environment", func(t *testing.T, key, value string) (setup.Given, error) {
			names := map[string]string{
				"cluster_id":         "SALTERN_CLUSTER_ID",
				"secret":             "SALTERN_SECRET",
				"node":               "SALTERN_NODE",
				"storage.path":       "SALTERN_STORAGE_PATH",
				"settings.log.level": "SALTERN_LOG_LEVEL",
			}
			if names[key] == "" {
				return look(t, Places{Environment: func(name string) string {
					return map[string]string{answersVariable: string(document(t, key, value))}[name]
				}})
			}

			return look(t,
				Places{Environment: func(name string) string { return map[string]string{names[key]: value}[name] }})
		}},
		{"saltern.answers in base64", func(t *testing.T, key, value string) (setup.Given, error) {
			return look(t,
				Places{OVF: filepath.Dir(write(t, "ovf-env.xml",
					ovfEnvironment("answers", base64.StdEncoding.EncodeToString(document(t, key, value)))))})
		}},
		{"answers file", func(t *testing.T, key, value string) (setup.Given, error) {
			return look(t, Places{File: write(t, "answers.yaml", document(t, key, value))})
		}},
	}
}

func ovfEnvironment(key, value string) []byte {
	var b bytes.Buffer
	b.WriteString(`<Environment><PropertySection><Property key="saltern.` + key + `" value="`)
	for _, c := range []byte(value) { // as a careless program would: XML has no way to write a NUL
		switch c {
		case '<', '>', '&', '"', '\t', '\n', '\r', 0:
			fmt.Fprintf(&b, "&#%d;", c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteString(`"/></PropertySection></Environment>`)
	return b.Bytes()
}

// textOf reads a text answer by its key.
func textOf(a *setup.Answers, key string) string {
	switch key {
	case "cluster_id":
		return a.Cluster
	case "node":
		return a.Node
	case "secret":
		return a.Secret
	case "admin.password":
		return a.Admin.Password
	case "storage.path":
		return a.Storage.Path
	case "settings.log.level":
		log, _ := a.Settings["log"].(map[string]any)
		text, _ := log["level"].(string)
		return text
	}

	return "?"
}

// TestValuesArriveByteForByte gives odd values by every way in (F2): what is
// found is what was given, or an error names the property.
func TestValuesArriveByteForByte(t *testing.T) {
	values := oddValues(500)
	for _, w := range ways(t.TempDir()) {
		t.Run(w.name, func(t *testing.T) {
			arrived := 0
			for i, value := range values {
				key := []string{"secret", "admin.password", "cluster_id", "settings.log.level", "node",
					"storage.path"}[i%6]
				given, err := w.give(t, key, value)
				switch {
				case err != nil:
					if !strings.Contains(strings.ReplaceAll(err.Error(), "_", "."), strings.ReplaceAll(key, "_", ".")) {
						t.Errorf("%q: the error does not name %s: %v", value, key, err)
					}
				case given.Answers == nil:
					t.Errorf("%s=%q: dropped: %v", key, value, given.Unused)
				case textOf(given.Answers, key) != value:
					t.Errorf("%s=%q arrives as %q", key, value, textOf(given.Answers, key))
				default:
					arrived++
				}
			}

			if arrived < 300 {
				t.Errorf("only %d of %d values arrive", arrived, len(values))
			}
		})
	}
}

// TestValuesInWhatIsWritten follows values into the files that are made of
// answers (F2): appliance.yaml as it is read back, the master's configuration and
// the cluster's secret as YAML reads them, the join string. Salt's own YAML reads
// them as well, where Salt is.
func TestValuesInWhatIsWritten(t *testing.T) {
	wanted := map[string]string{} // text of a file -> the value under "value"
	for _, value := range oddValues(500) {
		a := setup.Answers{
			Mode:    setup.Form,
			Node:    "n1",
			Cluster: "blue",
			Address: "192.0.2.1",
			Front:   []string{"0.0.0.0"},
			Storage: setup.Storage{Kind: "local", Path: "/srv/x"},
		}

		if err := a.Set("settings.webhook.secret_file", "/"+value); err != nil {
			continue // TestValuesArriveByteForByte looks at it
		}

		a.Settings["master"] = map[string]any{"options": map[string]any{"value": value}}

		// As it is after a power cut: through JSON.
		stored, err := json.Marshal(a)
		if err == nil {
			a = setup.Answers{}
			err = json.Unmarshal(stored, &a)
		}

		if err != nil {
			t.Fatal(err)
		}

		text, err := setup.Render(a, setup.Base{})
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}

		s, err := settings.Parse(text, "appliance.yaml", "n1")
		if err != nil {
			if !strings.Contains(err.Error(), "secret_file") {
				t.Errorf("%q: %v", value, err)
			}

			a.Settings["webhook"] = map[string]any{}
			if text, err = setup.Render(a, setup.Base{}); err == nil {
				s, err = settings.Parse(text, "appliance.yaml", "n1")
			}

			if err != nil {
				t.Errorf("%q: %v", value, err)
				continue
			}
		} else if s.Webhook.SecretFile != "/"+value {
			t.Errorf("%q is read back as %q", value, s.Webhook.SecretFile)
		}

		if s.Master.Options["value"] != value {
			t.Errorf("option %q is read back as %q", value, s.Master.Options["value"])
		}

		master, err := layout.MasterConfig(s, "saltern-master", "/x")
		if err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}

		wanted[string(master)] = value
		var read map[string]any
		if err := yaml.Unmarshal(master, &read); err != nil || read["value"] != value {
			t.Errorf("option %q is generated as %q %v", value, read["value"], err)
		}

		checkSecret(t, value)
	}

	readBySalt(t, wanted)
}

// checkSecret follows a value that can be a secret.
func checkSecret(t *testing.T, value string) {
	t.Helper()
	secret := value + "-Marble.oxide-42"
	if strings.ContainsFunc(secret, unicode.IsSpace) {
		return // refused where it is given; a join string takes blanks for broken lines
	}

	join := setup.JoinInfo{KeyHash: strings.Repeat("0a", 32), Secret: secret, Peers: []string{"192.0.2.1"}}.String()
	parsed, err := setup.ParseJoin(join)
	if err != nil {
		return // such a secret is refused, and the error says so
	}

	if parsed.Secret != secret {
		t.Errorf("secret %q is %q in the join string", secret, parsed.Secret)
	}

	text, err := layout.ClusterConfig(secret)
	var read map[string]any
	if err == nil {
		err = yaml.Unmarshal(text, &read)
	}

	if err != nil || read["cluster_secret"] != secret {
		t.Errorf("secret %q is generated as %q %v", secret, read["cluster_secret"], err)
	}
}

// readBySalt has the YAML reader of Salt's masters read the files.
func readBySalt(t *testing.T, wanted map[string]string) {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}

	pythons, _ := filepath.Glob(filepath.Join(cache, "saltern", "salt-3*", "bin", "python"))
	if len(pythons) == 0 {
		t.Log("NOT TESTED: Salt is not installed (make deps-salt)")
		return
	}

	type file struct{ Text, Value string }
	var files []file
	for text, value := range wanted {
		files = append(files, file{text, value})
	}

	input, err := json.Marshal(files)
	if err != nil {
		t.Fatal(err)
	}

	script := `import json, sys
import salt.utils.yaml
for f in json.load(sys.stdin):
    try:
        got = salt.utils.yaml.safe_load(f["Text"])["value"]
    except Exception as e:
        got = e
    if got != f["Value"]:
        print("%r is read as %r" % (f["Value"], got))
print("read")`

	cmd := exec.Command(pythons[len(pythons)-1], "-c", script)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil || string(out) != "read\n" {
		t.Errorf("%v %.3000s", err, out)
	}
}

// TestAnswersPropertyIsNotGuessed: a whole file of answers as a property is plain
// or base64, and never taken for the other.
func TestAnswersPropertyIsNotGuessed(t *testing.T) {
	const answers = "node: 'umläut ß'\nmode: form\n"
	for name, tt := range map[string]struct{ text, node, fault string }{
		"plain":  {answers, "umläut ß", ""},
		"base64": {base64.StdEncoding.EncodeToString([]byte(answers)), "umläut ß", ""},
		"base64, lines": {" " + base64.StdEncoding.EncodeToString([]byte(answers))[:20] + "\r\n" + base64.StdEncoding.EncodeToString([]byte(answers))[20:] + "\n",
			"umläut ß", ""},
		"base64, no padding": {base64.RawStdEncoding.EncodeToString([]byte(answers)), "umläut ß", ""},
		"a mark, CRLF":       {"\ufeffnode: a\r\nmode: form\r\n", "a", ""},
		"a mark in base64":   {base64.StdEncoding.EncodeToString([]byte("\ufeffnode: a\r\n")), "a", ""},
		"plain, like base64": {"abcdefgh", "", "saltern.answers"},
		"neither":            {"not base64!", "", "saltern.answers: may hold answers"},
		"base64 of a NUL": {base64.StdEncoding.EncodeToString([]byte("node: \"a\\0\"\n")), "",
			"saltern.answers: 1 error occurred:\n\t* line 1: node holds a NUL"},
		"base64 of a script": {base64.StdEncoding.EncodeToString([]byte("#!/bin/sh\n")), "", "a script"},
		"4 KiB":              {"node: " + strings.Repeat("x", 4096), strings.Repeat("x", 4096), ""},
		"too large in base64": {base64.StdEncoding.EncodeToString([]byte("node: " + strings.Repeat("x", maxText))),
			"", "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			given, err := ParseOVF(ovfEnvironment("answers", tt.text))
			if tt.fault != "" {
				if err == nil || !strings.Contains(err.Error(), tt.fault) {
					t.Errorf("%+v %v, want %q", given.Answers, err, tt.fault)
				}
				return
			}

			if err != nil || given.Answers.Node != tt.node {
				t.Errorf("%+v %v", given.Answers, err)
			}
		})
	}
}

// TestListsOfProperties: lists are split by the rules of their answer, on every
// way in (F11).
func TestListsOfProperties(t *testing.T) {
	p := Places{
		CommandLine: file(t, "cmdline",
			"saltern.set=peers:a,b saltern.set=network.dns:192.0.2.53 saltern.set=front=:: saltern.set=front::: saltern.set=network.search:a.example%20b.example"),
		Log: quiet(),
	}

	if _, err := p.Look(t.Context()); err == nil || !strings.Contains(err.Error(), "front=") {
		t.Errorf("a word without KEY:VALUE: %v", err)
	}

	p.CommandLine = file(t, "cmdline",
		"saltern.set=peers:a,b saltern.set=network.dns:192.0.2.53 saltern.set=front::: saltern.set=network.search:a.example%20b.example")
	given, err := p.Look(t.Context())
	if err != nil || fmt.Sprint(given.Answers.Peers, given.Answers.Network.DNS, given.Answers.Front,
		given.Answers.Network.Search) != "[a b] [192.0.2.53] [::] [a.example b.example]" {
		t.Errorf("%+v %v", given.Answers, err)
	}

	environment, err := ParseOVF(ovfEnvironment("network_search", "a.example, b.example"))
	if err != nil || len(environment.Answers.Network.Search) != 2 {
		t.Errorf("%+v %v", environment.Answers, err)
	}
}

// TestPropertiesOfOtherMachines: in a vApp, those below Entity are theirs.
func TestPropertiesOfOtherMachines(t *testing.T) {
	given, err := ParseOVF([]byte(`<Environment><PropertySection><Property key="saltern.node" value="n1"/></PropertySection>
		<Entity id="n2"><PropertySection><Property key="saltern.node" value="n2"/></PropertySection></Entity></Environment>`))
	if err != nil || given.Answers.Node != "n1" {
		t.Errorf("%+v %v", given.Answers, err)
	}
}

// TestPropertiesThatDiffer: two that give one answer have to agree.
func TestPropertiesThatDiffer(t *testing.T) {
	env := `<Environment><PropertySection><Property key="saltern.network_address" value="192.0.2.1/24"/><Property key="saltern.network.address" value="%s"/></PropertySection></Environment>`
	if _, err := ParseOVF(fmt.Appendf(nil, env, "192.0.2.2/24")); err == nil ||
		!strings.Contains(err.Error(), "saltern.network.address") || !strings.Contains(err.Error(),
		"saltern.network_address") {
		t.Errorf("%v", err)
	}
	if _, err := ParseOVF(fmt.Appendf(nil, env, "192.0.2.1/24")); err != nil {
		t.Errorf("%v", err)
	}
}
