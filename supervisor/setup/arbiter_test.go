package setup

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// TestArbiterAnswers: an arbiter needs no more than a join string and its role, and
// the schema knows the role.
func TestArbiterAnswers(t *testing.T) {
	j := JoinInfo{KeyHash: someHash, Secret: someSecret, Peers: []string{"192.0.2.1"}}
	v := Validate(Answers{JoinString: j.String(), Storage: Storage{Role: RoleArbiter}}, someFacts(), Base{})
	if len(v.Faults) > 0 || v.Answers.Mode != Join {
		t.Errorf("%+v", v)
	}

	for _, s := range planSteps(v.Answers) {
		if strings.Contains(s.name, "salt-master") {
			t.Errorf("an arbiter is to %s", s.name)
		}
	}

	b, err := json.Marshal(Schema()["properties"].(map[string]any)["storage"])
	if err != nil || !strings.Contains(string(b), `"enum":["data","arbiter"]`) ||
		!strings.Contains(string(b), "lets two nodes go on") {
		t.Errorf("%v %s", err, b)
	}
}

// TestModeArbiter: the mode stands for joining in that role, and for nothing else.
func TestModeArbiter(t *testing.T) {
	j := JoinInfo{KeyHash: someHash, Secret: someSecret, Peers: []string{"192.0.2.1"}}
	v := Validate(Answers{Mode: JoinAsArbiter, JoinString: j.String()}, someFacts(), Base{})
	if len(v.Faults) > 0 || v.Answers.Mode != Join || !v.Answers.arbiter() {
		t.Errorf("%+v", v)
	}
	v = Validate(Answers{Mode: JoinAsArbiter, JoinString: j.String(), Storage: Storage{Role: RoleData}},
		someFacts(), Base{})
	if len(v.Faults) != 1 || v.Faults[0].Field != "storage.role" {
		t.Errorf("%+v", v.Faults)
	}
}

// TestArbiterLine: what an arbiter says of itself when it asks to join.
func TestArbiterLine(t *testing.T) {
	m := NewMachine(newMachine(t).config())
	a := Answers{Mode: Join, Node: "n3", Address: "127.0.70.9", Front: []string{"0.0.0.0"}}
	a.Storage.Kind = settings.VolumeStorage
	for role, want := range map[string]string{
		"":          "data [127.0.70.9]",
		RoleData:    "data [127.0.70.9]",
		RoleArbiter: "arbiter []",
	} {
		a.Storage.Role = role
		n, err := m.ownNode(a)
		if got := fmt.Sprint(n.Storage, " ", n.Front); err != nil || got != want || n.Brick == "" {
			t.Errorf("%q: %s %q %v", role, got, n.Brick, err)
		}
	}
}

// TestArbiterPorts: ports of services that it does not run may be taken.
func TestArbiterPorts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	s := settings.Default("n1")
	s.Front.Addresses = []string{"127.0.0.1"}
	s.Peering.Address = "127.0.0.1"
	s.Master.Address = "127.0.0.1"
	s.Front.RequestPort, s.Peering.NodePort = ln.Addr().(*net.TCPAddr).Port, 0

	for arbiter, want := range map[bool]Result{false: Fail, true: Pass} {
		s.Arbiter = arbiter
		if c := (&Preflight{}).checkListening(&s, true); c.Result != want {
			t.Errorf("arbiter %v: %+v", arbiter, c)
		}
	}
}

// TestSecondArbiter: the check before the set-up names the one that is there.
func TestSecondArbiter(t *testing.T) {
	table := nodes.Table{
		Cluster: "prod",
		Nodes: []nodes.Node{{
			Name:        "n3",
			Address:     "192.0.2.3",
			Certificate: "a",
			Storage:     nodes.ArbiterStorage,
			State:       nodes.Member,
		}},
	}

	a := Answers{Node: "n4", Address: "192.0.2.4", Storage: Storage{Role: RoleArbiter}}
	c := nameCheck(a, "b", &nodeapi.Met{Table: table})
	if c.Result != Fail || !strings.Contains(c.Detail, "has an arbiter already, node n3 at 192.0.2.3") ||
		!strings.Contains(c.Hint, "leave storage.role (--arbiter) out") {
		t.Errorf("%+v", c)
	}

	a.Storage.Role = ""
	if c := nameCheck(a, "b", &nodeapi.Met{Table: table}); c.Result != Pass {
		t.Errorf("%+v", c)
	}
}

// A machine that was made of another one, with its key, was told to take another name,
// which changes nothing; only a key of its own does.
func TestCopyOfANode(t *testing.T) {
	table := nodes.Table{Nodes: []nodes.Node{{Name: "n1", Address: "192.0.2.1", State: nodes.Member, Certificate: "a"}}}
	c := nameCheck(Answers{Node: "n2", Address: "192.0.2.2"}, "a", &nodeapi.Met{Table: table})
	if c.Result != Fail || !strings.Contains(c.Detail, "has the key of node n1 at 192.0.2.1") ||
		!strings.Contains(c.Hint, "applianced reset") || strings.Contains(c.Hint, "another name") {
		t.Errorf("%+v", c)
	}
	c = nameCheck(Answers{Node: "n1", Address: "192.0.2.1"}, "a", &nodeapi.Met{Table: table})
	if c.Result != Pass {
		t.Errorf("the node itself: %+v", c)
	}
}
