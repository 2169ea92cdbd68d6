package userdata

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

func gzipped(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func inBase64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

// lined breaks base64 into lines of 76, as mail has it.
func lined(text string) string {
	var b strings.Builder
	for len(text) > 76 {
		b.WriteString(text[:76] + "\r\n")
		text = text[76:]
	}
	return b.String() + text
}

// multi is a MIME message of parts, each with its header.
func multi(head string, parts ...string) string {
	text := head + "\n\npreamble\n"
	for _, p := range parts {
		text += "--==BOUNDARY==\n" + p + "\n"
	}
	return text + "--==BOUNDARY==--\n"
}

const (
	config   = "#cloud-config\nusers: []\nsaltern:\n  mode: form\n  node: given\n"
	script   = "#!/bin/sh\necho hi\n"
	typeHead = `Content-Type: multipart/mixed; boundary="==BOUNDARY=="` + "\nMIME-Version: 1.0"
	asConfig = "Content-Type: text/cloud-config\n\n"
	asScript = "Content-Type: text/x-shellscript; charset=\"us-ascii\"\nMIME-Version: 1.0\nContent-Transfer-Encoding: 7bit\n\n"
)

// packings are texts in all packings with the answers "node: given" in them (F6, F10).
func packings(t testing.TB) map[string]string {
	utf := func(big bool) string {
		b := []byte{0xff, 0xfe}
		if big {
			b = []byte{0xfe, 0xff}
		}

		for _, u := range utf16.Encode([]rune(config)) {
			if big {
				b = append(b, byte(u>>8), byte(u))
			} else {
				b = append(b, byte(u), byte(u>>8))
			}
		}

		return string(b)
	}

	nested := asScript + script + "\n--==BOUNDARY==\nContent-Type: multipart/mixed; boundary=inner\n\n--inner\n" + asConfig + config + "\n--inner--\n"
	anchored := "#cloud-config\nbase: &n {node: given}\nwhole: &w [a.example]\nsaltern:\n  <<: *n\n  mode: form\n  network: {search: *w}\n"
	return map[string]string{
		"plain":                config,
		"a mark":               "\ufeff" + config,
		"CRLF":                 strings.ReplaceAll(config, "\n", "\r\n"),
		"UTF-16, little":       utf(false),
		"UTF-16, big":          utf(true),
		"blank lines first":    "\n \r\n\n" + config,
		"document start":       "#cloud-config\n---\nsaltern: {node: given}\n",
		"JSON":                 "#cloud-config\n" + `{"saltern": {"node": "given"}, "users": []}`,
		"our head":             "#saltern\nnode: given\n",
		"without a head":       "mode: form\nnode: given\n",
		"upper case head":      strings.Replace(config, "#cloud-config", "#Cloud-Config", 1),
		"jinja":                "## template: jinja\n" + config,
		"anchors from outside": anchored,
		"gzip":                 gzipped(t, config),
		"base64":               inBase64(config),
		"base64 in lines":      lined(inBase64(config)),
		"gzip in base64":       inBase64(gzipped(t, config)),
		"gzip twice":           gzipped(t, gzipped(t, config)),
		"MIME, type first":     multi(typeHead, asScript+script, asConfig+config),
		"MIME, version first": multi("MIME-Version: 1.0\n"+strings.Split(typeHead, "\n")[0],
			asConfig+config),
		"MIME, From first": multi("From nobody Fri Jan 11 07:00:00 2019\n"+typeHead, asConfig+config),
		"MIME, CRLF": strings.ReplaceAll(multi(typeHead, asScript+script, asConfig+config),
			"\n", "\r\n"),
		"MIME, base64": multi(typeHead,
			"Content-Type: text/cloud-config\nContent-Transfer-Encoding: base64\n\n"+lined(inBase64(config))),
		"MIME, quoted": multi(typeHead,
			"Content-Type: text/cloud-config\nContent-Transfer-Encoding: Quoted-Printable\n\n"+
				strings.ReplaceAll(config, ":", "=3A")),
		"MIME, gzip part": multi(typeHead,
			"Content-Type: application/x-gzip\nContent-Transfer-Encoding: base64\n\n"+
				lined(inBase64(gzipped(t, config)))),
		"MIME, nested":           multi(typeHead, nested),
		"MIME, plain part":       multi(typeHead, "Content-Type: text/plain\n\n"+config),
		"MIME, part of no type":  multi(typeHead, "\n"+config),
		"MIME, jinja part":       multi(typeHead, "Content-Type: text/jinja2\n\n## template: jinja\n"+config),
		"MIME, one part alone":   "MIME-Version: 1.0\nContent-Type: text/cloud-config\n\n" + config,
		"gzip of MIME":           gzipped(t, multi(typeHead, asScript+script, asConfig+config)),
		"base64 of gzip of MIME": inBase64(gzipped(t, multi(typeHead, asConfig+config))),
		"archive":                "#cloud-config-archive\n- type: text/x-shellscript\n  content: |\n    #!/bin/sh\n- |\n  #cloud-config\n  saltern: {node: given}\n",
		"archive, type":          "#cloud-config-archive\n- type: text/cloud-config\n  filename: a\n  content: |\n    saltern: {node: given}\n",
		"archive, binary": "#cloud-config-archive\n- content: !!binary " +
			inBase64(gzipped(t, config)) + "\n",
		"MIME with an archive": multi(typeHead,
			"Content-Type: text/cloud-config-archive\n\n#cloud-config-archive\n- content: |\n    #cloud-config\n    saltern: {node: given}"),
		"answers beside a list of others": multi(typeHead,
			"Content-Type: text/x-include-url\n\n#include\nhttps://example.org", asConfig+config,
			"Content-Type: text/cloud-boothook\n\n#cloud-boothook\n"),
	}
}

// TestPackedUserData: answers are found in whatever cloud-init would find them in
// (F6, F10), also among texts of others and in places that are ours alone.
func TestPackedUserData(t *testing.T) {
	for name, text := range packings(t) {
		t.Run(name, func(t *testing.T) {
			for _, whose := range []owner{shared, oursAlone} {
				if a, err := findAnswers([]byte(text), whose); err != nil || a.Node != "given" {
					t.Errorf("%+v %v", a, err)
				}
			}
		})
	}
}

// foreignTexts are meant for others (F10), with words that say so.
func foreignTexts(t testing.TB) map[string]string {
	return map[string]string{
		script:                        "a script",
		"\ufeff" + script:             "a script",
		"\n\n" + script:               "a script",
		"#include\nhttps://x/\n":      "list of addresses",
		"#include-once\nhttps://x/\n": "list of addresses",
		"#part-handler\ndef list_types(): pass\n":                       "part handler",
		"#cloud-boothook\n#!/bin/sh\n":                                  "boot hook",
		"#upstart-job\nstart on x\n":                                    "Upstart",
		"#cloud-config-jsonp\n[]\n":                                     "JSON patch",
		"#ps1_sysnative\nGet-Date\n":                                    "PowerShell",
		"<powershell>\nGet-Date\n</powershell>\n":                       "PowerShell",
		"rem cmd\necho\n":                                               "Windows",
		"<html>not found</html>":                                        "XML or HTML",
		`{"ignition": {"version": "3.4.0"}, "storage": {"files": []}}`:  "without answers",
		"variant: fcos\nversion: 1.5.0\nstorage: {}\n":                  "without answers",
		"version: 2\nnetwork: {}\n":                                     "without answers",
		"#cloud-config\nusers: []\n":                                    "without the key saltern",
		"\ufeff#cloud-config\nusers: []\n":                              "without the key saltern",
		"\n#cloud-config\nusers: []\n":                                  "without the key saltern",
		"## template: jinja\n#cloud-config\nhostname: {{ v1.x }}\n":     "without the key saltern",
		"## template: jinja\n#!/bin/sh\necho {{ v1.x }}\n":              "a script",
		"#cloud-config\nwrite_files:\n- content: |\n    x saltern: [\n": "without the key saltern",
		"#cloud-config\nruncmd: [saltern\n":                             "not YAML",
		"#cloud-config-archive\n- content: |\n    #!/bin/sh\n":          "part 1 is a script",
		inBase64(script):                                                "(base64): a script",
		gzipped(t, script):                                              "(gzip): a script",
		gzipped(t, multi(typeHead, asScript+
			script, asConfig+"users: []")): "(gzip, MIME, 2 parts): part 1 is a script, part 2 is a #cloud-config without",
		multi(typeHead, asScript+script):                        "(MIME, 1 parts): part 1 is a script",
		"MIME-Version: 1.0\nContent-Type: multipart/mixed\n\nx": "boundary",
		gzipped(t, script)[:20]:                                 "unreadable (unpack gzip",
		"hello":                                                 "without answers",
		"- a\n- b\n":                                            "without answers",
		"a: [\n":                                                "unknown kind",
		"\x00\x01\x02\xff":                                      "unknown kind",
		gzipped(t, strings.Repeat("\x00", 2*MaxGiven)):                       "more than 1048576 bytes",
		bomb(t, maxPacked+2):                                                 "packed more than",
		multi(typeHead, strings.Repeat("\nx\n--==BOUNDARY==\n", maxParts+3)): "more than 64 parts",
		deepMIME(maxPacked + 3):                                              "nested too deeply",
	}
}

// bomb is a text that was packed n times.
func bomb(t testing.TB, n int) string {
	text := config
	for range n {
		text = gzipped(t, text)
	}
	return text
}

// deepMIME is a message in a message in a message.
func deepMIME(n int) string {
	text := "Content-Type: text/plain\n\nx\n"
	for i := range n {
		text = fmt.Sprintf("Content-Type: multipart/mixed; boundary=b%d\nMIME-Version: 1.0\n\n--b%d\n%s\n--b%d--\n",
			i, i, text, i)
	}
	return text
}

// TestForeignUserData: it is nobody's mistake, and words say what it is.
func TestForeignUserData(t *testing.T) {
	for text, words := range foreignTexts(t) {
		t.Run(fmt.Sprintf("%.30q", text), func(t *testing.T) {
			a, err := findAnswers([]byte(text), shared)
			if !errors.Is(err, ErrOther) || !strings.Contains(reason(err), words) {
				t.Errorf("%+v %v, want %q", a, err, words)
			}
		})
	}
}

// TestWrongUserData: what is ours and wrong is an error with part and line.
func TestWrongUserData(t *testing.T) {
	cut := multi(typeHead, asScript+script, asConfig+config)
	for name, tt := range map[string]struct{ text, says string }{
		"unknown key": {"#cloud-config\nusers: []\nsaltern:\n  nod: x\n", "line 4: nod is not an answer"},
		"in a part": {multi(typeHead, asScript+script, asConfig+"#cloud-config\nsaltern: {node: [a]}"),
			"part 2: 1 error occurred:\n\t* line 2: node may hold text, not a list"},
		"in a packed part": {gzipped(t, multi(typeHead, "Content-Transfer-Encoding: base64\n\n"+lined(inBase64("#cloud-config\nsaltern:\n  mode: [\n")))),
			"part 1: yaml: line"},
		"a map for text": {"mode: form\nadmin:\n  password: {curly}\n",
			"line 3: admin.password may hold text, not keys and values"},
		"a tag": {"mode: form\nsecret: !Bang-first-42\n",
			"line 2: secret begins with the tag !Bang-first-42"},
		"not a truth value": {"mode: form\napi: maybe\n", "line 2: api may hold true or false"},
		"twice":             {"mode: form\nmode: join\n", "line 2: mode stands there twice"},
		"two documents":     {"mode: form\n---\nnode: x\n", "line 3: a second YAML document"},
		"two in cloud-config": {"#cloud-config\nusers: []\n---\nsaltern: {mode: form}\n",
			"line 4: a second YAML document"},
		"two parts": {multi(typeHead, asConfig+config, asConfig+config),
			"part 1 and part 2 both hold answers"},
		"template": {"## template: jinja\n#cloud-config\nsaltern:\n  node: '{{ v1.local_hostname }}'\n",
			"line 4: \"{{ v1.local_hostname }}\" is a template"},
		"broken template": {"## template: jinja\n#cloud-config\nsaltern:\n  {% if x %}\n", "yaml"},
		"saltern is text": {"#cloud-config\nsaltern: 5\n", "line 2: saltern: is not a list of answers"},
		"cut MIME":        {cut[:len(cut)-40], "part 2: cut off"},
		"cut gzip":        {gzipped(t, config+strings.Repeat("#", 100_000))[:150], "unpack gzip"},
		"alias to itself": {"mode: form\nsettings: &a {x: *a}\n", "nested too deeply"},
		"a laugh": {"mode: form\nsettings:\n  a: &a [x,x,x,x,x,x,x,x,x,x]\n  b: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\n  c: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n  d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\n  e: [*d,*d,*d,*d,*d]\n",
			"more than 10000 values"},
		"too large": {"mode: form\nnode: " + strings.Repeat("x", maxText), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := findAnswers([]byte(tt.text), shared)
			if err == nil || errors.Is(err, ErrOther) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%+v %v, want %q", a, err, tt.says)
			}
		})
	}
}

// TestFirstAnswersOfOursWin: foreign and empty texts hide nothing (F10), and what
// is not used is said.
func TestFirstAnswersOfOursWin(t *testing.T) {
	seed := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}

	ovf := filepath.Dir(file(t, "ovf-env.xml", string(ovfEnvironment("node", "ovf"))))
	for name, tt := range map[string]struct {
		places Places
		node   string // "": none
		unused []string
	}{
		"foreign seed, then ours": {Places{Seeds: []string{seed(map[string]string{"user-data": script}), seed(map[string]string{"user-data": config})}},
			"given",
			[]string{"the cidata disk, user-data was given and holds no answers for the set-up: a script"}},
		"empty saltern.yaml": {Places{Seeds: []string{seed(map[string]string{"saltern.yaml": "", "user-data": config})}},
			"given", nil},
		"empty user-data": {Places{Seeds: []string{seed(map[string]string{"user-data": "\n"}), seed(map[string]string{"user-data": config})}},
			"given", nil},
		"foreign, then OVF": {Places{Seeds: []string{seed(map[string]string{"user-data": gzipped(t, script)})}, OVF: ovf},
			"ovf", []string{"(gzip): a script"}},
		"ours, then a file": {Places{Seeds: []string{seed(map[string]string{"user-data": config})}, File: file(t, "a.yaml", "node: other\n")},
			"given", nil},
		"network-config alone": {Places{Seeds: []string{seed(map[string]string{"network-config": "version: 2\n", "meta-data": "instance-id: x\n"})}},
			"", []string{"network-config is not read"}},
		"vendor-data, foreign": {Places{Seeds: []string{seed(map[string]string{"vendor-data": script, "user-data": "#cloud-config\n{}\n"})}},
			"", []string{"without the key saltern", "vendor-data is not read"}},
		"name of meta-data": {Places{Seeds: []string{seed(map[string]string{"meta-data": "instance-id: i-1\nlocal-hostname: salt-7\n", "user-data": "mode: form\n"})}},
			"salt-7", nil},
		"own name wins": {Places{Seeds: []string{seed(map[string]string{"meta-data": "local-hostname: salt-7\n", "user-data": config})}},
			"given", nil},
		"meta-data in JSON": {Places{Seeds: []string{seed(map[string]string{"meta-data": `{"local-hostname": "salt-8"}`, "user-data": "mode: form\n"})}},
			"salt-8", nil},
		"a name that is none": {Places{Seeds: []string{seed(map[string]string{"meta-data": "local-hostname: a b\n", "user-data": "mode: form\n"})}},
			"-", []string{"local-hostname is not used"}},
		"too large for anybody": {Places{Seeds: []string{seed(map[string]string{"user-data": "#!" + strings.Repeat("x", MaxGiven)})}, OVF: ovf},
			"ovf", []string{"larger than"}},
	} {
		t.Run(name, func(t *testing.T) {
			tt.places.Log = quiet()
			found, err := tt.places.Look(t.Context())
			if err != nil || (found.Answers == nil) != (tt.node == "") ||
				tt.node != "" && tt.node != "-" && found.Answers.Node != tt.node {
				t.Fatalf("%+v %+v %v", found, found.Answers, err)
			}
			if len(found.Unused) != len(tt.unused) {
				t.Fatalf("%q, want %q", found.Unused, tt.unused)
			}

			for i, words := range tt.unused {
				if !strings.Contains(found.Unused[i], words) {
					t.Errorf("%q, want %q", found.Unused[i], words)
				}
			}
		})
	}
}

// TestWrongAnswersEndTheSearch: nobody is set up by what somebody meant to replace.
func TestWrongAnswersEndTheSearch(t *testing.T) {
	dir := filepath.Dir(file(t, "user-data", "#cloud-config\nsaltern:\n  node: [x]\n"))
	p := Places{Seeds: []string{dir}, File: file(t, "a.yaml", "mode: form\n"), Log: quiet()}
	found, err := p.Look(t.Context())
	if err == nil || found.Answers != nil ||
		!strings.Contains(err.Error(),
			"the cidata disk, user-data: 1 error occurred:\n\t* line 3: node may hold text") {
		t.Errorf("%+v %v", found, err)
	}
}

// TestDiskLabels: udev writes a blank as \x20 (F12).
func TestDiskLabels(t *testing.T) {
	for name, want := range map[string]string{
		`OVF\x20ENV`: "OVF ENV",
		"CIDATA":     "CIDATA",
		`a\x2`:       `a\x2`,
		`\xzz`:       `\xzz`,
		`\x41\x42`:   "AB",
	} {
		if got := diskLabel(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}

	if !hasLabel(ovfLabels, "ovf env") || !hasLabel(ovfLabels, "OVF-TRANSPORT") ||
		!hasLabel(seedLabels, "CiData") || hasLabel(seedLabels, "data") {
		t.Error("labels")
	}
}
