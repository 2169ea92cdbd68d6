package setup

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	someHash   = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	someSecret = "correct-horse-battery-staple"
)

func someFacts() Facts {
	return Facts{
		Hostname:   "sca-1",
		Managed:    true,
		Volume:     false,
		Interfaces: []Interface{{Name: "eth0", Default: true, Addresses: []string{"192.0.2.10/24"}}},
		Disks:      []Disk{{Path: "/dev/sdb", Empty: true}, {Path: "/dev/sdc", Why: "2 partitions"}},
	}
}

// TestDefaults: of a first node next to nothing has to be said.
func TestDefaults(t *testing.T) {
	v := Validate(Answers{Mode: Form}, someFacts(), Base{})
	a := v.Answers
	if len(v.Faults) > 0 || a.Node != "sca-1" || a.Address != "192.0.2.10" || a.Cluster != "saltern" ||
		a.Storage.Kind != "local" || len(a.Front) != 1 {
		t.Errorf("%+v", v)
	}
	j := JoinInfo{KeyHash: someHash, Secret: someSecret, Peers: []string{"192.0.2.1", "sca-2.example.org"}}
	v = Validate(Answers{JoinString: "  " + j.String()[:40] + "\n  " + j.String()[40:] + "\n"}, someFacts(), Base{})
	if len(v.Faults) > 0 || v.Answers.Mode != Join || v.Answers.Secret != someSecret || len(v.Answers.Peers) != 2 {
		t.Errorf("%+v", v)
	}
}

// TestFaults: each wrong answer is told at its field, all of them at once.
func TestFaults(t *testing.T) {
	good := func() Answers { return Answers{Mode: Form, Node: "n1", Address: "192.0.2.10"} }
	join := func(a *Answers) {
		a.Mode = Join
		a.Peers = []string{"192.0.2.1"}
		a.Secret = someSecret
	}

	for name, tt := range map[string]struct {
		change func(*Answers)
		field  string
		says   string
	}{
		"no mode":               {func(a *Answers) { a.Mode = "" }, "mode", "form"},
		"other mode":            {func(a *Answers) { a.Mode = "grow" }, "mode", "not known"},
		"name with a slash":     {func(a *Answers) { a.Node = "a/b" }, "node", "host name"},
		"name with dots":        {func(a *Answers) { a.Node = "a..b" }, "node", "host name"},
		"localhost":             {func(a *Answers) { a.Node = "localhost" }, "node", "name of its own"},
		"cluster":               {func(a *Answers) { a.Cluster = "a b" }, "cluster_id", "plain name"},
		"address":               {func(a *Answers) { a.Address = "sca-1" }, "address", "not an IP address"},
		"any address":           {func(a *Answers) { a.Address = "0.0.0.0" }, "address", "one machine"},
		"front":                 {func(a *Answers) { a.Front = []string{"x"} }, "front", "not an IP address"},
		"short secret":          {func(a *Answers) { a.Secret = "tiny" }, "secret", "shorter"},
		"secret with a blank":   {func(a *Answers) { a.Secret = "correct horse battery" }, "secret", "blank"},
		"join without a secret": {func(a *Answers) { join(a); a.Secret = "" }, "secret", "missing"},
		"join without peers":    {func(a *Answers) { join(a); a.Peers = nil }, "peers", "missing"},
		"peer with a port": {func(a *Answers) { join(a); a.Peers = []string{"sca-1:4521"} }, "peers",
			"without a port"},
		"peer is this machine": {func(a *Answers) { join(a); a.Peers = []string{"192.0.2.10"} }, "peers",
			"this machine"},
		"peers when forming": {func(a *Answers) { a.Peers = []string{"192.0.2.1"} }, "peers", "has none"},
		"join string": {func(a *Answers) { a.Mode, a.JoinString = Join, "sca1.x.y@z" }, "join",
			"not a join string"},
		"join string's secret": {func(a *Answers) {
			a.Mode, a.JoinString = Join, JoinInfo{someHash, "short", []string{"192.0.2.1"}}.String()
		}, "join", "shorter"},
		"two secrets": {func(a *Answers) {
			join(a)
			a.JoinString = JoinInfo{someHash, someSecret + "x", []string{"192.0.2.1"}}.String()
		}, "secret", "differs"},
		"storage":              {func(a *Answers) { a.Storage.Kind = "nfs" }, "storage.kind", "not known"},
		"no directory":         {func(a *Answers) { a.Storage.Kind = "directory" }, "storage.path", "missing"},
		"volume without means": {func(a *Answers) { a.Storage.Kind = "volume" }, "storage.kind", "glusterd"},
		"role": {func(a *Answers) { join(a); a.Storage.Role = "witness" }, "storage.role",
			"not known: data or arbiter"},
		"first as arbiter": {func(a *Answers) { a.Storage.Role = RoleArbiter }, "storage.role",
			"first node of a cluster cannot be its arbiter"},
		"arbiter of nothing": {func(a *Answers) {
			join(a)
			a.Storage = Storage{Kind: "directory", Path: "/srv/x", Role: RoleArbiter}
		}, "storage.role", "no copies to decide between"},
		"arbiter's front": {func(a *Answers) {
			join(a)
			a.Storage.Role = RoleArbiter
			a.Front = []string{"192.0.2.10"}
		}, "front", "serves no minions"},
		"arbiter's API": {func(a *Answers) {
			join(a)
			a.Storage.Role = RoleArbiter
			a.API = true
		}, "api", "no master"},
		"arbiter's virtual": {func(a *Answers) {
			join(a)
			a.Storage.Role = RoleArbiter
			a.Virtual = "192.0.2.20"
		}, "virtual_address", "never has it"},
		"local for a joiner": {func(a *Answers) { join(a); a.Storage.Kind = "local" }, "storage.kind", "alone"},
		"relative path": {func(a *Answers) { a.Storage = Storage{Kind: "directory", Path: "srv"} },
			"storage.path", "absolute"},
		"no such disk":   {func(a *Answers) { a.DataDisk = "/dev/sdz" }, "data_disk", "no free disk"},
		"disk in use":    {func(a *Answers) { a.DataDisk = "/dev/sdc" }, "data_disk", "2 partitions"},
		"disk by a file": {func(a *Answers) { a.DataDisk = "/tmp/disk" }, "data_disk", "block device"},
		"virtual":        {func(a *Answers) { a.Virtual = "x" }, "virtual_address", "IP address"},
		"virtual is own": {func(a *Answers) { a.Virtual = a.Address }, "virtual_address", "own address"},
		"virtual elsewhere": {func(a *Answers) { a.Virtual = "10.0.0.20" }, "virtual_address",
			"none of this node's networks"},
		"virtual is many": {func(a *Answers) { a.Virtual = "224.0.0.18" }, "virtual_address", "IP address"},
		"virtual of six":  {func(a *Answers) { a.Virtual = "fd00::20" }, "virtual_address", "same kind"},
		"virtual not listened": {func(a *Answers) {
			a.Virtual = "192.0.2.20"
			a.Front = []string{a.Address}
		}, "front", "left out with a virtual address"},
		"method":         {func(a *Answers) { a.Network.Method = "magic" }, "network.method", "not known"},
		"static without": {func(a *Answers) { a.Network.Method = "static" }, "network.address", "prefix length"},
		"gateway elsewhere": {func(a *Answers) {
			a.Network.Method = "static"
			a.Network.Address = "192.0.2.10/24"
			a.Network.Gateway = "198.51.100.1"
		}, "network.gateway", "not another machine"},
		"address with dhcp": {func(a *Answers) {
			a.Network.Method = "dhcp"
			a.Network.Address = "192.0.2.10/24"
		}, "network.method", "static"},
		"interface": {func(a *Answers) { a.Network.Interface = "eth9" }, "network.interface", "no"},
		"dns": {func(a *Answers) { a.Network.DNS = []string{"dns.example.org"} }, "network.dns",
			"IP address"},
		"search":   {func(a *Answers) { a.Network.Search = []string{"a_b"} }, "network.search", "not a domain"},
		"ntp":      {func(a *Answers) { a.Network.NTP = []string{"-x"} }, "network.ntp", "host name"},
		"hostname": {func(a *Answers) { a.Network.Hostname = "a b" }, "network.hostname", "host name"},
		"ssh key": {func(a *Answers) { a.Admin.SSHKeys = []string{"ssh-ed25519"} },
			"admin.ssh_keys", "public key"},
		"private key": {func(a *Answers) { a.Admin.SSHKeys = []string{"-----BEGIN OPENSSH PRIVATE KEY-----"} },
			"admin.ssh_keys", "private key"},
		"password":        {func(a *Answers) { a.Admin.Password = "short" }, "admin.password", "8 to 256"},
		"unknown setting": {func(a *Answers) { a.Settings = map[string]any{"wrong": 1} }, "settings", "wrong"},
		"two bad settings": {func(a *Answers) { a.Settings = map[string]any{"log": map[string]any{"level": "x", "format": "y"}} },
			"settings", "log.level"},
	} {
		a := good()
		tt.change(&a)
		v := Validate(a, someFacts(), Base{})
		found := false
		for _, f := range v.Faults {
			found = found || f.Field == tt.field && strings.Contains(f.Message, tt.says)
		}

		if !found {
			t.Errorf("%s: wanted %s: ...%s..., got %v", name, tt.field, tt.says, v.Faults)
		}

		if err := Faults(v.Faults); err == nil || a.Secret != "" && strings.Contains(err.Error(), a.Secret) {
			t.Errorf("%s: %v", name, err)
		}
	}

	many := Validate(Answers{Mode: "x", Node: "/", Address: "y", Storage: Storage{Kind: "z"}}, someFacts(), Base{})
	if len(many.Faults) != 4 {
		t.Errorf("four wrong answers gave %v", many.Faults)
	}
}

// Answers go through JSON on their way from the wizard; numbers in settings
// must stay what they were.
func TestSettingsSurviveJSON(t *testing.T) {
	a := Answers{
		Mode:     Form,
		Node:     "n1",
		Address:  "192.0.2.10",
		Settings: map[string]any{"front": map[string]any{"publish_port": 5505}},
	}

	b, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}

	var c Answers
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}

	v := Validate(c, someFacts(), Base{DataDir: "/d"})
	text, err := Render(v.Answers, Base{DataDir: "/d"})
	if err != nil || len(v.Faults) > 0 || !strings.Contains(string(text), "publish_port: 5505\n") ||
		!strings.Contains(string(text), "data_dir: /d\n") {
		t.Errorf("%v %v\n%s", v.Faults, err, text)
	}
}

// TestJoinTypos: a typing error in a join string is told from a wrong one, with
// its place; strings of before are accepted.
func TestJoinTypos(t *testing.T) {
	good := JoinInfo{someHash, "correct-h@rse.battery", []string{"192.0.2.1", "192.0.2.2"}}
	line := good.String()
	former := strings.Replace(line, line[:12], "sca1.", 1)
	if !strings.HasPrefix(former, "sca1."+someHash+".") {
		t.Fatal(former)
	}

	peers := strings.Join(good.Peers, ",")
	hashed := "sca1." + hashedCheckOf(someHash) + hashedCheckOf(good.Secret) + hashedCheckOf(peers) + line[11:]
	for _, s := range []string{line, former, hashed} {
		if j, err := ParseJoin(s); err != nil || j.Secret != good.Secret || j.KeyHash != someHash || len(j.Peers) != 2 {
			t.Errorf("%s: %+v %v", s, j, err)
		}
	}

	for _, s := range []string{"sca2" + hashed[4:], "sca1" + line[4:],
		strings.Replace(hashed, "battery", "batterx", 1)} {
		if j, err := ParseJoin(s); err == nil {
			t.Errorf("%s: %+v", s, j)
		}
	}

	for name, tt := range map[string]struct{ typed, says string }{
		"hash": {strings.Replace(line, "456789", "465789", 1),
			"typing error after the second dot (the hash)"},
		"hash too short": {strings.Replace(line, "0123", "013", 1), "typing error after the second dot (the hash)"},
		"secret": {strings.Replace(line, "battery", "batterry", 1),
			"typing error after the third dot (the secret)"},
		"address": {strings.Replace(line, "192.0.2.1", "192.0.2.11", 1),
			"typing error after the @ (the addresses)"},
		"cut off":      {line[:len(line)-5], "typing error after the @ (the addresses)"},
		"check":        {"sca2.aaaaaa" + line[11:], "after the first dot"},
		"no addresses": {line[:strings.LastIndex(line, "@")], "typing error"},
		"two": {strings.Replace(strings.Replace(line, "battery", "x", 1), "0123", "0", 1),
			"the hash), and one after the third"},
		"neither":         {"sca2." + line[12:40], "is not a join string, or is cut off"},
		"former, too big": {former[:20] + "0" + former[20:], "is not a join string"},
	} {
		if _, err := ParseJoin(tt.typed); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEveryMistypedCharacterIsFound: a part with one wrong character, or with two in each
// other's place, has another checksum, whatever it holds. (m12)
func TestEveryMistypedCharacterIsFound(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	parts := []string{someHash, someSecret, "192.0.2.1,192.0.2.2,fd00::1"}
	for _, n := range []int{1, 16, 128, 1019} {
		part := make([]byte, n)
		for i := range part {
			part[i] = byte('!' + r.IntN('~'-'!'+1))
		}
		parts = append(parts, string(part))
	}

	for _, part := range parts {
		good := checkOf(part)
		typed := []byte(part)
		for i := range typed {
			for c := byte(' '); c <= '~'; c++ {
				typed[i] = c
				if c != part[i] && checkOf(string(typed)) == good {
					t.Fatalf("seed %d: %q and %q have the same checksum", seed, part, typed)
				}
			}
			typed[i] = part[i]
		}

		for i := range typed {
			for j := i + 1; j < min(i+40, len(typed)); j++ {
				typed[i], typed[j] = typed[j], typed[i]
				if part[i] != part[j] && checkOf(string(typed)) == good {
					t.Fatalf("seed %d: %q and %q have the same checksum", seed, part, typed)
				}
				typed[i], typed[j] = typed[j], typed[i]
			}
		}

		if checkOf(part[:len(part)-1]) == good {
			t.Errorf("%q without its last character has the same checksum", part)
		}
	}
}

func FuzzParseJoin(f *testing.F) {
	f.Add(JoinInfo{someHash, someSecret, []string{"192.0.2.1", "fd00::1", "a.example.org"}}.String())
	f.Add("sca1." + someHash + ".a@b.c@d")
	f.Fuzz(func(t *testing.T, s string) {
		j, err := ParseJoin(s)
		if err != nil {
			return
		}
		again, err := ParseJoin(j.String())
		if err != nil || again.Secret != j.Secret || strings.Join(again.Peers, ",") != strings.Join(j.Peers, ",") {
			t.Fatalf("%+v became %+v: %v", j, again, err)
		}
	})
}

// TestSchema: it has every answer, and says of none what Validate does not.
func TestSchema(t *testing.T) {
	b, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}

	for _, want := range []string{`"erase_data_disk":{"description":"the data disk may hold something; it is erased","type":"boolean"}`,
		`"enum":["form","join","arbiter"]`,
		`"ssh_keys":{`, `"additionalProperties":false`, `"kind":{"enum":["volume","directory","local"],"type":"string"}`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in %s", want, b)
		}
	}

	a := Answers{
		Mode:     Form,
		Address:  "192.0.2.7",
		DataDisk: "/dev/nvme1n1",
		Network:  Network{Interface: "ens5", Method: "dhcp"},
	}

	if v := Validate(a, Anywhere(a), Base{}); len(v.Faults) > 0 {
		t.Errorf("answers for another machine: %v", v.Faults)
	}
}

func TestDefaultAddress(t *testing.T) {
	lan := Interface{Name: "a", Addresses: []string{"fe80::1/64", "192.0.2.1/24"}}
	other := Interface{Name: "b", Addresses: []string{"198.51.100.1/24"}}
	route := other
	route.Default = true

	for _, tt := range []struct {
		n    Network
		all  []Interface
		want string
	}{
		{Network{Method: "static", Address: "203.0.113.9/24"}, []Interface{lan, route}, "203.0.113.9"},
		{Network{}, []Interface{lan, route}, "198.51.100.1"},
		{Network{Method: "dhcp"}, []Interface{lan}, "192.0.2.1"}, // a network without a way out
		{Network{}, []Interface{lan, other}, ""},
		{Network{}, nil, ""},
	} {
		if got := DefaultAddress(tt.n, Facts{Interfaces: tt.all}); got != tt.want {
			t.Errorf("%+v %+v: %q, want %q", tt.n, tt.all, got, tt.want)
		}
	}
}

// TestAddressOfThisMachine: who answers at the machine learns at once that it
// does not have the address; answers that came with it may be early.
func TestAddressOfThisMachine(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*Answers, *Facts)
		fault  string
	}{
		"its own": {func(*Answers, *Facts) {}, ""},
		"another one": {func(a *Answers, _ *Facts) { a.Address = "192.0.2.9" },
			"this machine does not have 192.0.2.9; it has 192.0.2.10"},
		"to be set": {func(a *Answers, _ *Facts) { a.Address, a.Network = "192.0.2.9", static("192.0.2.9/24") }, ""},
		"by DHCP": {func(a *Answers, _ *Facts) {
			a.Address = "192.0.2.9"
			a.Network = Network{Method: "dhcp"}
		}, ""},
		"loopback":        {func(a *Answers, _ *Facts) { a.Address = "127.0.0.9" }, ""},
		"wrong otherwise": {func(a *Answers, _ *Facts) { a.Address = "192.0.2" }, "is not an IP address"},
		"no address": {func(a *Answers, f *Facts) {
			a.Address = "192.0.2.9"
			f.Interfaces = nil
		}, "nor any other address"},
	} {
		t.Run(name, func(t *testing.T) {
			a, f := Answers{Mode: Form, Node: "n1"}, someFacts()
			tt.change(&a, &f)
			faults := ValidateHere(a, f, Base{}).Faults
			switch {
			case tt.fault == "" && len(faults) > 0:
				t.Errorf("%v", faults)
			case tt.fault != "" && (len(faults) != 1 || faults[0].Field != "address" ||
				!strings.Contains(faults[0].Message, tt.fault)):
				t.Errorf("%v", faults)
			}

			if name == "another one" && len(Validate(a, f, Base{}).Faults) > 0 {
				t.Error("answers that came with the machine do not wait for the address")
			}
		})
	}
}

func static(address string) Network { return Network{Method: "static", Address: address} }

// TestAPIAnswer: one answer switches Salt's API on, and leaves what Settings says of it.
func TestAPIAnswer(t *testing.T) {
	for _, on := range []bool{true, false} {
		v := Validate(Answers{
			Mode:     Form,
			Node:     "n1",
			Address:  "192.0.2.10",
			API:      on,
			Settings: map[string]any{"api": map[string]any{"names": []string{"salt.example.org"}}},
		},
			someFacts(), Base{})

		s, err := (&Preflight{}).settings(v.Answers)
		if err != nil || len(v.Faults) > 0 || s.API.Enabled != on || len(s.API.Names) != 1 {
			t.Errorf("%t: %+v %v %v", on, s.API, v.Faults, err)
		}
	}
}
