package ova

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/setup"
	"saltern/supervisor/userdata"
)

func build(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("SKIPPED: needs qemu-img (apt-get install qemu-utils)")
	}

	dir := t.TempDir()
	raw := filepath.Join(dir, "raw")
	content := bytes.Repeat([]byte("saltern "), 100<<10)
	if err := os.WriteFile(raw, content, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.Truncate(raw, 4<<20); err != nil {
		t.Fatal(err)
	}

	out := filepath.Join(dir, "x.ova")
	o := Options{
		Out:       out,
		Raw:       raw,
		Name:      "saltern",
		Version:   "1.0",
		CPUs:      2,
		MemoryMiB: 2048,
		Epoch:     time.Unix(1750000000, 0),
	}

	if err := Build(context.Background(), o); err != nil {
		t.Fatal(err)
	}

	return out
}

// The content number of a disk may have fewer than eight digits.
func TestFixID(t *testing.T) {
	const want = "# Disk DescriptorFile\nversion=1\nCID=5a17e2d0\nparentCID=ffffffff\n"
	for _, id := range []string{"1", "fe1c3a9", "0fe1c3a9", "ffffffff"} {
		path := filepath.Join(t.TempDir(), "disk")
		text := "# Disk DescriptorFile\nversion=1\nCID=" + id + "\nparentCID=ffffffff\n"
		disk := append(append([]byte(text), make([]byte, 1024-len(text))...), "data"...)
		if err := os.WriteFile(path, disk, 0o600); err != nil {
			t.Fatal(err)
		}

		if err := fixID(path); err != nil {
			t.Errorf("%s: %v", id, err)
		}

		got, err := os.ReadFile(path)
		if err != nil || len(got) != len(disk) || string(bytes.TrimRight(got[:1024], "\x00")) != want ||
			string(got[1024:]) != "data" {
			t.Errorf("%s: %q, %v", id, got, err)
		}
	}

	full := filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(full, []byte("\nCID=1\nx\x00"), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := fixID(full); err == nil {
		t.Error("written over what follows the descriptor")
	}
}

// TestOVA: what is packed can be deployed, is the same twice, and qemu-img
// reads the very disk back from it.
func TestOVA(t *testing.T) {
	a, b := build(t), build(t)
	one, err1 := os.ReadFile(a)
	two, err2 := os.ReadFile(b)
	if err1 != nil || err2 != nil || !bytes.Equal(one, two) {
		t.Errorf("not the same twice (%v %v)", err1, err2)
	}

	c, err := verify(bytes.NewReader(one))
	if err != nil {
		t.Fatal(err)
	}

	if c.Populated != 13*grain { // 800 KiB of text
		t.Errorf("%d bytes are populated", c.Populated)
	}

	if c.Name != "saltern" || c.Capacity != 4<<20 || len(c.Properties) != len(asked()) {
		t.Errorf("%+v", c)
	}

	dir := t.TempDir()
	if out, err := exec.Command("tar", "-xf", a, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	raw := filepath.Join(dir, "back")
	if out, err := exec.Command("qemu-img", "convert", "-f", "vmdk", "-O", "raw", filepath.Join(dir, c.Disk),
		raw).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}

	got, err1 := os.ReadFile(raw)
	want, err2 := os.ReadFile(filepath.Join(filepath.Dir(a), "raw"))
	if err1 != nil || err2 != nil || !bytes.Equal(got, want) {
		t.Error("the disk came back changed")
	}

	bad := bytes.Clone(one)
	bad[len(bad)-4096] ^= 1
	if _, err := verify(bytes.NewReader(bad)); err == nil {
		t.Error("a damaged archive was taken")
	}
}

// asked are all properties.
func asked() []Property {
	var all []Property
	for _, c := range categories {
		all = append(all, c.Properties...)
	}
	return all
}

// TestDescriptor: names cannot break out of the XML, and secrets are marked.
func TestDescriptor(t *testing.T) {
	b, err := machine{Name: `a"<b>&`, Disk: "d", Categories: categories, Class: class}.descriptor()
	if err != nil || strings.Contains(string(b), `a"<b>`) {
		t.Errorf("%v %s", err, b)
	}
	for _, p := range asked() {
		if slices.Contains([]string{"secret", "join", "answers", "admin_password"}, p.Key) != p.Secret {
			t.Errorf("%s: secret %v", p.Key, p.Secret)
		}
		if strings.ContainsAny(p.Key, ".:") {
			t.Errorf("%s: dots and colons separate class, key and instance", p.Key)
		}
	}
}

// TestPropertiesAreAnswers: a property has the name of its answer, and those
// without a property are left out on purpose (m27).
func TestPropertiesAreAnswers(t *testing.T) {
	left := map[string]string{
		"front":             "all addresses",
		"erase_data_disk":   "the template's disk is empty",
		"storage.kind":      "the image has a volume",
		"storage.path":      "as above",
		"storage.tls":       "on",
		"storage.role":      "mode arbiter",
		"network.interface": "the template has one",
		"settings":          "in answers",
	}

	properties := map[string]bool{"answers": false}
	for _, p := range asked() {
		properties[p.Key] = true
	}

	for _, answer := range setup.AnswerKeys() {
		key := strings.Replace(answer, ".", "_", 1)
		if _, without := left[answer]; properties[key] == without {
			t.Errorf("%s: property %v, left out %v", answer, properties[key], without)
		}
		delete(properties, key)
	}

	delete(properties, "answers")
	for key := range properties {
		t.Errorf("%s is no answer", key)
	}
}

// TestChoicesAreAnswers: what a property lets choose is taken as an answer.
func TestChoicesAreAnswers(t *testing.T) {
	schema := setup.Schema()["properties"].(map[string]any)
	for _, p := range asked() {
		for _, choice := range p.Choices {
			given, err := userdata.ParseOVF(environment(t, map[string]string{p.Key: choice, "node": "n1"}))
			if err != nil || given.Answers == nil {
				t.Errorf("%s=%s: %v", p.Key, choice, err)
			}
			if field, _ := schema[p.Key].(map[string]any); choice != "" && field["enum"] != nil &&
				!slices.Contains(field["enum"].([]string), choice) {
				t.Errorf("%s may not be %s", p.Key, choice)
			}
		}
	}
}

// TestVersionIsOne: what names a commit is no version.
func TestVersionIsOne(t *testing.T) {
	for version, want := range map[string]string{
		"1.0":              "1.0",
		"v1.2.3":           "v1.2.3",
		"1.2.3-rc.1":       "1.2.3-rc.1",
		"f05afb80":         "",
		"0e081792-dirty":   "",
		"":                 "",
		"12":               "",
		"1.2.3-4-gabcdef0": "1.2.3-4-gabcdef0",
	} {
		if got := releaseOf(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}

		b, err := machine{
			Name:       "saltern",
			Version:    version,
			Release:    releaseOf(version),
			Disk:       "d",
			Categories: categories,
			Class:      class,
		}.descriptor()
		if err != nil || strings.Contains(string(b), "<Version>") != (want != "") {
			t.Errorf("%q: %v %s", version, err, b)
		}
	}
}

// TestSectionsInOrder: elements stand in the order of the schema (DSP0243 9.5,
// DSP8023), without addresses that nobody has.
func TestSectionsInOrder(t *testing.T) {
	b, err := machine{
		Name:       "saltern",
		Version:    "1.0",
		Release:    "1.0",
		Disk:       "d",
		Categories: categories,
		Class:      class,
	}.descriptor()
	if err != nil {
		t.Fatal(err)
	}

	at := 0
	for _, element := range []string{"<References>", "<DiskSection>", "ovf:populatedSize=",
		"<NetworkSection>", "<VirtualSystem ", "<OperatingSystemSection ", "<VirtualHardwareSection ",
		"<AnnotationSection>", "<Annotation>", "<ProductSection ", "<Product>", "<Vendor>", "<Version>",
		"<FullVersion>", "<Category>", "<Property ", "<Label>", "<Description>"} {
		next := strings.Index(string(b[at:]), element)
		if next < 0 {
			t.Fatalf("%s is not there, or too early", element)
		}
		at += next
	}

	if strings.Contains(string(b), "Url>") {
		t.Error("the project has no address")
	}
}

// environment is what a hypervisor hands to a machine that was deployed from
// the descriptor: a property is seen as class, dot and key (DSP0243 9.5.1), with
// the values given, else with the descriptor's own.
func environment(t *testing.T, given map[string]string) []byte {
	t.Helper()
	b, err := machine{Name: "saltern", Disk: "d", Categories: categories, Class: class}.descriptor()
	if err != nil {
		t.Fatal(err)
	}

	var d struct {
		Sections []struct {
			Class      string `xml:"class,attr"`
			Instance   string `xml:"instance,attr"`
			Properties []struct {
				Key   string `xml:"key,attr"`
				Value string `xml:"value,attr"`
			} `xml:"Property"`
		} `xml:"VirtualSystem>ProductSection"`
	}

	if err := xml.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}

	var env strings.Builder
	env.WriteString(`<?xml version="1.0"?><Environment xmlns="http://schemas.dmtf.org/ovf/environment/1" xmlns:oe="http://schemas.dmtf.org/ovf/environment/1"><PropertySection>`)
	for _, s := range d.Sections {
		for _, p := range s.Properties {
			key := p.Key
			if s.Class != "" {
				key = s.Class + "." + key
			}

			if s.Instance != "" {
				key += "." + s.Instance
			}

			value, ok := given[p.Key]
			if !ok {
				value = p.Value
			}

			delete(given, p.Key)
			fmt.Fprintf(&env, `<Property oe:key="%s" oe:value="%s"/>`, escape(key), escape(value))
		}
	}

	if len(given) > 0 {
		t.Fatalf("the descriptor does not ask for %v", given)
	}

	env.WriteString(`</PropertySection></Environment>`)
	return []byte(env.String())
}

// TestAnswersOfADeployment: what is typed where the archive is deployed arrives
// as answers of the set-up, lists among them.
func TestAnswersOfADeployment(t *testing.T) {
	deployed, err := userdata.ParseOVF(environment(t, map[string]string{
		"mode": "join", "cluster_id": "blue", "node": "n2", "peers": "192.0.2.1, 192.0.2.2", "secret": "HVF5-0Q9Z-7T1M-KX2B-W8RD",
		"network_method": "static", "network_address": "192.0.2.12/24", "network_gateway": "192.0.2.254", "network_dns": "192.0.2.53", "network_ntp": "192.0.2.54,ntp.example",
		"admin_ssh_keys": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJuTbTKBmIvNxBWyBfNZ2ycUmO7TN0CPGUdR4qWmrcHW x", "admin_password": "correct horse",
	}))
	if err != nil {
		t.Fatal(err)
	}

	a := deployed.Answers
	if a.Mode != setup.Join || a.Cluster != "blue" || a.Node != "n2" ||
		!slices.Equal(a.Peers, []string{"192.0.2.1", "192.0.2.2"}) ||
		a.Network.Address != "192.0.2.12/24" || !slices.Equal(a.Network.NTP,
		[]string{"192.0.2.54", "ntp.example"}) || len(a.Admin.SSHKeys) != 1 || a.Admin.Password != "correct horse" {
		t.Errorf("%+v", a)
	}

	facts := setup.Facts{
		Hostname:   "saltern",
		Managed:    true,
		Volume:     true,
		Disks:      []setup.Disk{{Path: "/dev/sda"}, {Path: "/dev/sdb", Size: dataSize, Empty: true}},
		Interfaces: []setup.Interface{{Name: "eth0", Default: true}},
	}

	if v := setup.Validate(*a, facts, setup.Base{}); len(v.Faults) > 0 || v.Answers.DataDisk != "/dev/sdb" {
		t.Errorf("faults %v, data disk %q", v.Faults, v.Answers.DataDisk)
	}

	whole := "mode: form\nnode: all\n"
	if given, err := userdata.ParseOVF(environment(t,
		map[string]string{"answers": base64.StdEncoding.EncodeToString([]byte(whole))})); err != nil ||
		given.Answers.Node != "all" || len(given.Unused) > 0 {
		t.Errorf("%+v %v", given, err)
	}

	if given, err := userdata.ParseOVF(environment(t, nil)); err != nil || given.Answers != nil {
		t.Errorf("nothing was typed, but the console would not ask: %+v %v", given, err)
	}
}
