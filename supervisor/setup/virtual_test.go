package setup

import (
	"strings"
	"testing"
)

// TestJoinedVirtual: a machine that joins learns the virtual address; what it
// was told otherwise stops it, what it cannot do is a warning.
func TestJoinedVirtual(t *testing.T) {
	near := Preflight{Facts: someFacts()}
	cloud := near
	cloud.Facts.EC2 = true
	t.Setenv("PATH", "/nowhere")

	for _, c := range []struct {
		p             Preflight
		said, cluster string
		want          Result
		says          string
	}{
		{near, "192.0.2.21", "192.0.2.20", Fail, "it is 192.0.2.20, not 192.0.2.21"},
		{near, "192.0.2.20", "", Fail, "it has none"},
		{near, "", "192.0.2.20", Warn, "keepalived is not installed"},
		{near, "192.0.2.20", "192.0.2.20", Warn, "keepalived is not installed"},
		{cloud, "", "192.0.2.20", Warn, "EC2"},
	} {
		got := c.p.joinedVirtual(Answers{Address: "192.0.2.10", Virtual: c.said}, c.cluster)
		if got.Result != c.want || !strings.Contains(got.Detail, c.says) || got.Hint == "" {
			t.Errorf("%q in a cluster with %q: %+v", c.said, c.cluster, got)
		}
	}

	if got := near.virtual(t.Context(), Answers{
		Address: "192.0.2.10",
		Virtual: "192.0.2.20",
	}); got.Result != Fail || !strings.Contains(got.Hint, "apt-get install keepalived") ||
		!strings.Contains(got.Hint, "leave the virtual address out") {
		t.Errorf("%+v", got)
	}
}

// TestConfigCheckKnowsNoNetwork: answers meant for another machine are checked
// as far as that is possible here.
func TestConfigCheckKnowsNoNetwork(t *testing.T) {
	for virtual, ok := range map[string]bool{"10.0.0.20": true, "fd00::20": true, "bad": false} {
		a := Answers{Mode: Form, Virtual: virtual}
		if v := Validate(a, Anywhere(a), Base{}); (len(v.Faults) == 0) != ok {
			t.Errorf("%s: %v", virtual, v.Faults)
		}
	}
}

// TestNoVirtualAddressOnEC2: it would have no effect there.
func TestNoVirtualAddressOnEC2(t *testing.T) {
	f := someFacts()
	f.EC2 = true
	v := Validate(Answers{Mode: Form, Virtual: "192.0.2.20"}, f, Base{})
	if len(v.Faults) != 1 || v.Faults[0].Field != "virtual_address" ||
		!strings.Contains(v.Faults[0].Message, "network load balancer") {
		t.Errorf("%v", v.Faults)
	}
}
