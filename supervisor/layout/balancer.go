package layout

import (
	"bytes"
	"fmt"
	"path/filepath"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/settings"
)

// BalancerConfig returns the generated configuration of this node's load balancer: its fronts, an
// admin socket, and the masters of all nodes.
func BalancerConfig(s *settings.Settings) ([]byte, error) {
	type front struct {
		Name    string   `yaml:"name"`
		Mode    string   `yaml:"mode"`
		Bind    []string `yaml:"bind"`
		Balance string   `yaml:"balance,omitempty"`
		ProxyV2 bool     `yaml:"proxy_v2,omitempty"`
	}

	type backend struct {
		Name        string `yaml:"name"`
		Address     string `yaml:"address"`
		PublishPort int    `yaml:"publish_port"`
		RequestPort int    `yaml:"request_port"`
		APIPort     int    `yaml:"api_port"`
		ProxyV2     bool   `yaml:"proxy_v2"`
	}

	backends := []backend{{s.Node, s.Master.Address, s.Master.PublishPort, s.Master.RequestPort,
		s.Master.APIPort, s.LB.ProxyProtocol}}
	for _, m := range s.Members {
		if m.Name != s.Node {
			backends = append(backends,
				backend{m.Name, m.Address, s.Master.PublishPort, s.Master.RequestPort, s.Master.APIPort,
					s.LB.ProxyProtocol})
		}
	}

	c := struct {
		Frontends []front           `yaml:"frontends"`
		Backends  []backend         `yaml:"backends"`
		Log       map[string]string `yaml:"log"`
		Admin     map[string]string `yaml:"admin"`
	}{
		Frontends: []front{
			{"publish", "publish", s.FrontPublish(), s.LB.Balance, false},
			{"request", "request", s.FrontRequest(), "", false},
		},
		Backends: backends,
		Log:      map[string]string{"sessions": "publish"}, // requests are too many to log
		Admin: map[string]string{
			"socket":   s.LBSocket(),
			"handover": filepath.Join(filepath.Dir(s.LBSocket()), "handover.sock"),
		},
	}

	if s.APIBehind() {
		c.Frontends = append(c.Frontends, front{"api", "api", s.FrontAPI(), "source", true})
	}

	var b bytes.Buffer
	fmt.Fprintln(&b, "# Written by applianced at every start of the load balancer; do not edit.")
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)

	if err := enc.Encode(c); err != nil {
		return nil, fmt.Errorf("load balancer configuration: %w", err)
	}

	return b.Bytes(), nil
}
