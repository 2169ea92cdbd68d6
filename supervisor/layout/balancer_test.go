package layout

import (
	"fmt"
	"testing"

	"saltern/lbproxy"
)

// The load balancer must accept what is written for it.
func TestBalancerConfigIsAccepted(t *testing.T) {
	s := node(t, "front: {addresses: ['0.0.0.0', '::']}\n")
	b, err := BalancerConfig(s)
	if err != nil {
		t.Fatal(err)
	}

	c, err := lbproxy.ParseConfig(b)
	if err != nil {
		t.Fatalf("%v in:\n%s", err, b)
	}

	if len(c.Frontends) != 2 || c.Backends[0].APIPort != 14507 || len(c.Frontends[0].Bind) != 2 ||
		c.Backends[0].PublishPort != 14505 || !c.Backends[0].ProxyV2 ||
		c.Admin.Socket != s.LBSocket() {
		t.Errorf("%+v", c)
	}
}

// TestBalancerConfigAPI: there is a front for Salt's API where the node serves it.
func TestBalancerConfigAPI(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "api: {enabled: true}": 8000, "api: {enabled: true}\nfront: {api_port: 443}": 443,
		"api: {enabled: true}\nfront: {api_port: 0}": 0, "front: {api_port: 443}": 0,
	} {
		s := node(t, text+"\n")
		b, err := BalancerConfig(s)
		if err != nil {
			t.Fatal(err)
		}

		c, err := lbproxy.ParseConfig(b)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, b)
		}
		if want == 0 {
			if len(c.Frontends) != 2 || apiOptions(s)["behind"] != nil {
				t.Errorf("%q: %+v", text, c.Frontends)
			}
			continue
		}

		if len(c.Frontends) != 3 || c.Frontends[2].Mode != lbproxy.API || !c.Frontends[2].ProxyV2 ||
			c.Frontends[2].Balance != "source" ||
			c.Frontends[2].Bind[0] != fmt.Sprint("0.0.0.0:", want) || apiOptions(s)["behind"] != "127.0.0.1:14507" || apiOptions(s)["port"] != want {
			t.Errorf("%q: %+v %v", text, c.Frontends, apiOptions(s))
		}

		if got := string(Balancers(s)); got != "127.0.0.1/32\n" {
			t.Errorf("balancers: %q", got)
		}
	}
}

// TestFinding09Appliance: the load balancer of an appliance limits sources, by
// defaults that nothing in what is written for it turns off.
func TestFinding09Appliance(t *testing.T) {
	b, err := BalancerConfig(node(t, ""))
	if err != nil {
		t.Fatal(err)
	}

	c, err := lbproxy.ParseConfig(b)
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range c.Frontends {
		if f.MaxPerSource < 0 || f.Rate < 0 {
			t.Errorf("frontend %s has no limits of a source", f.Name)
		}
	}

	if c.Health.Check != lbproxy.CheckPing || c.Connect.Handshake <= 0 || c.Connect.Unproven <= 0 {
		t.Errorf("%+v %+v", c.Health, c.Connect)
	}
}
