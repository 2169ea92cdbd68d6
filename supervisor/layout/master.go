package layout

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"saltern/internal/control/pam"
	"saltern/internal/durable"
	"saltern/internal/onedoc"
	"saltern/supervisor/python"
	"saltern/supervisor/settings"
)

const masterHead = `# Written by applianced at every start of the master; do not edit.
# Your own options go into
#   %s/*.conf
# and into appliance.yaml under master.options.
`

// requestTTL is the greatest age at which a master accepts a minion's request, in seconds. It
// prevents the replay of older requests. Masters remember younger requests for twice as long
// (master/request.NonceWindow).
const requestTTL = 600

// MasterConfig returns the generated configuration of the master. user is the account of the
// master, include the folder of the administrator's option files.
func MasterConfig(s *settings.Settings, user, include string) ([]byte, error) {
	own, err := netip.ParseAddr(s.Master.Address)
	if err != nil {
		return nil, fmt.Errorf("master address: %w", err)
	}

	type pair struct {
		key   string
		value any
	}

	id := s.Node
	if s.Peering.Enabled {
		id = s.Peering.Address // masters identify each other by their address
	}

	managed := []pair{
		{"id", id},
		{"user", user},
		{"interface", s.Master.Address},
		{"publish_port", s.Master.PublishPort},
		{"ret_port", s.Master.RequestPort},
		{"root_dir", "/"},
		{"pki_dir", s.PKIDir()},
		{"cachedir", s.CacheDir()},
		{"sock_dir", s.MasterSockDir()},
		{"pidfile", filepath.Join(s.MasterSockDir(), "salt-master.pid")},
		{"log_file", filepath.Join(s.CacheDir(), "salt-master.log")},
		{"default_include", filepath.Join(include, "*.conf")},
		{"saltern_conditions", s.ConditionsFile()},
		{"saltern_node", s.Node}, {"saltern_pam", pam.Socket}, {"saltern_door", s.DoorSocket()},
		{"saltern_python_layer", filepath.Join(s.LayersDir(), python.Current)},
	}

	if own.Is6() {
		managed = append(managed, pair{"ipv6", true})
	}

	if s.API.Enabled {
		managed = append(managed, pair{"saltern_api", apiOptions(s)})
	}

	if s.LB.Enabled {
		managed = append(managed, pair{"saltern_front_publish_port", s.Front.PublishPort})
	}

	if s.LB.Enabled && s.LB.ProxyProtocol {
		managed = append(managed, pair{"saltern_proxy_from", proxySources(s)})
	}

	if s.Peering.Enabled {
		peers := []string{}
		for _, m := range s.Members {
			if m.Address != s.Peering.Address && !s.Founds {
				peers = append(peers, m.Address)
			}
		}

		managed = append(managed,
			pair{"cluster_id", s.Cluster},
			pair{"cluster_peers", peers},
			pair{"cluster_pki_dir", s.SharedPKIDir()},
			pair{"cluster_pool_port", s.Peering.PoolPort},
			pair{"include", []string{s.ClusterConf()}},
			pair{"saltern_supervisor", s.APISocket()})
	}

	defaults := []pair{
		{"log_level", logLevel(s)},
		{"request_server_ttl", requestTTL},
		{"log_level_logfile", "quiet"}, // the supervisor logs what the master prints
		{"file_roots", map[string][]string{"base": {s.FileRoot()}}},
		{"gpg_keydir", s.GPGDir()},
		// the master's renderers keep decrypted secrets in memory, because each run of gpg is
		// expensive
		{"gpg_cache", true},
		{"pillar_roots", map[string][]string{"base": {s.PillarRoot()}}},
	}

	for _, d := range defaults {
		if _, given := s.Master.Options[d.key]; !given {
			managed = append(managed, d)
		}
	}

	for _, k := range slices.Sorted(maps.Keys(s.Master.Options)) {
		managed = append(managed, pair{k, s.Master.Options[k]})
	}

	var b bytes.Buffer
	fmt.Fprintf(&b, masterHead, s.EditConfDir())
	for _, p := range managed {
		text, err := marshalForSalt(map[string]any{p.key: p.value})
		if err != nil {
			return nil, fmt.Errorf("master option %s: %w", p.key, err)
		}
		b.Write(text)
	}

	return b.Bytes(), nil
}

// marshalForSalt encodes YAML for Salt's parser (PyYAML, YAML 1.1). In YAML 1.1 a plain equals sign
// has a special type, which that parser refuses. So marshalForSalt quotes it.
func marshalForSalt(v any) ([]byte, error) {
	var n yaml.Node
	if err := n.Encode(v); err != nil {
		return nil, err
	}
	quoteEquals(&n)
	return yaml.Marshal(&n)
}

func quoteEquals(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Value == "=" {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quoteEquals(c)
	}
}

// defaultAPIPort is the port of Salt's API if the load balancer does not serve it and rest_cherrypy
// names no port.
const defaultAPIPort = 8000

// apiOptions returns values for options of salt-api that rest_cherrypy does not set.
func apiOptions(s *settings.Settings) map[string]any {
	opts := map[string]any{
		"host":        apiHost(s),
		"port":        cmp.Or(s.Front.APIPort, defaultAPIPort),
		"ssl_crt":     s.APICert(),
		"ssl_key":     s.APICert(),
		"console":     true,
		"minion_conf": s.APIMinionConf(),
	}
	if s.APIBehind() {
		opts["behind"], opts["balancers"] = s.MasterAPI(), s.APIBalancers()
	}
	return opts
}

// Balancers returns the text of the file that tells salt-api the addresses of the load balancers.
func Balancers(s *settings.Settings) []byte {
	return []byte(strings.Join(proxySources(s), "\n") + "\n")
}

// APIAddresses returns the addresses at which the node listens for Salt's API, according to the
// settings. Options on the shared storage may override them.
func APIAddresses(s *settings.Settings) []string {
	opts := apiOptions(s)
	given, _ := s.Master.Options["rest_cherrypy"].(map[string]any)
	port, said := given["port"]
	if s.APIBehind() && given["host"] == nil && (!said || port == opts["port"]) {
		return append(s.FrontAPI(), s.MasterAPI())
	}
	maps.Copy(opts, given)
	return []string{net.JoinHostPort(fmt.Sprint(opts["host"]), fmt.Sprint(opts["port"]))}
}

// logLevel returns the master's name for the log level in the settings.
func logLevel(s *settings.Settings) string {
	if s.Log.Level == "warn" {
		return "warning"
	}
	return s.Log.Level
}

// apiHost returns the address at which salt-api listens by default: the load balancer's address, so
// that requests to the virtual address reach salt-api.
func apiHost(s *settings.Settings) string {
	host := s.Front.Addresses[0]
	for _, a := range s.Front.Addresses {
		if ip, err := netip.ParseAddr(a); err == nil && ip.IsUnspecified() && (ip.Is6() || host != "::") {
			host = ip.String() // the wildcard of IPv6 accepts IPv4 too
		}
	}
	return host
}

// clientOptions lists the options of the master's configuration that the tools need when a user
// other than root runs them. Every user can read the file with these options.
var clientOptions = []string{"id", "user", "interface", "publish_port", "ret_port", "root_dir", "pki_dir",
	"cachedir", "sock_dir", "ipv6", "cluster_id",
	"timeout", "gather_job_timeout", "order_masters", "color", "state_output", "state_verbose", "keysize", "hash_type",
	"transport", "saltern_python_layer"}

const clientHead = `# Written by applianced at every start of the master; do not edit.
# For the tools of users who may not read the master's configuration.
`

// ClientConf returns the folder of the configuration for the tools of other users.
func ClientConf(s *settings.Settings) string { return filepath.Join(s.MasterConf(), "client") }

// ClientConfig returns the configuration of clients, taken from the text of MasterConfig, without
// secrets.
func ClientConfig(master []byte) ([]byte, error) {
	var all map[string]any
	if err := yaml.Unmarshal(master, &all); err != nil {
		return nil, fmt.Errorf("read the master's configuration: %w", err)
	}
	some := map[string]any{"log_file": "/dev/null", "key_logfile": "/dev/null"}
	for _, k := range clientOptions {
		if v, ok := all[k]; ok {
			some[k] = v
		}
	}
	text, err := marshalForSalt(some)
	return append([]byte(clientHead), text...), err
}

// proxySources returns the addresses from which load balancers reach the master: the addresses of
// this node and of the other nodes. The kernel connects to a loopback address from 127.0.0.1, and
// to any other address of this machine from that address.
func proxySources(s *settings.Settings) []string {
	own, err := netip.ParseAddr(s.Master.Address)
	if err != nil { // the address has been validated before
		return nil
	}

	list := []netip.Addr{own}
	if own.Is4() && own.IsLoopback() {
		list = append(list, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}

	for _, m := range s.Members {
		if a, err := netip.ParseAddr(m.Address); err == nil {
			list = append(list, a)
		}
	}

	var out []string
	for _, a := range list {
		p := netip.PrefixFrom(a, a.BitLen()).String()
		if !slices.Contains(out, p) {
			out = append(out, p)
		}
	}

	return out
}

// ClusterConfig returns the part of the master's configuration with the cluster's secret. Only the
// master may read it.
func ClusterConfig(secret string) ([]byte, error) {
	text, err := yaml.Marshal(map[string]string{"cluster_secret": secret})
	return append([]byte("# Written by applianced; do not edit.\n"), text...), err
}

// UserFault is a fault in the administrator's own options. The fault prevents a start, or the
// status shows it.
type UserFault struct {
	File     string
	Line     int
	Option   string // empty: the file cannot be read as YAML
	Insecure bool   // the option is one of settings.Insecure
	Allowed  bool   // allow_insecure names the insecure option
	Reason   string
}

// Error returns the fault with its place.
func (u *UserFault) Error() string {
	at := u.File
	if u.Line > 0 {
		at = fmt.Sprintf("%s:%d", u.File, u.Line)
	}
	if u.Option == "" {
		return at + ": " + u.Reason
	}
	return at + ": " + u.Option + ": " + u.Reason
}

const (
	maxUserFile  = 1 << 20
	maxUserFiles = 256
)

// CheckUserConf reads the administrator's option files in dir and returns the faults that prevent a
// start. It checks only top-level keys, because only the master knows what the options mean. It
// also returns insecure options that appliance.yaml allows, so that the status can show them.
func CheckUserConf(s *settings.Settings, dir string) (out []*UserFault) {
	for _, o := range settings.Insecure() {
		if v, ok := s.Master.Options[o]; ok && v != false {
			out = append(out, &UserFault{
				File:     "appliance.yaml",
				Option:   o,
				Insecure: true,
				Allowed:  true,
				Reason:   "is on",
			})
		}
	}

	files, _ := filepath.Glob(filepath.Join(dir, "*.conf"))
	for _, f := range files[:min(len(files), maxUserFiles)] {
		out = append(out, checkUserFile(s, f)...)
	}

	if len(files) > maxUserFiles {
		out = append(out, &UserFault{File: dir, Reason: fmt.Sprintf("more than %d files", maxUserFiles)})
	}

	return out
}

func checkUserFile(s *settings.Settings, path string) []*UserFault {
	b, _, err := durable.ReadFile(path, maxUserFile, durable.Follow)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []*UserFault{{File: path, Reason: err.Error()}}
	}

	var doc yaml.Node
	if err := onedoc.Decode(b, &doc); err != nil {
		line, reason := yamlFault(err)
		return []*UserFault{{File: path, Line: line, Reason: reason}}
	}
	if doc.Kind == 0 { // an empty file
		return nil
	}

	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		if top.Kind == yaml.ScalarNode && top.Tag == "!!null" {
			return nil
		}
		return []*UserFault{{File: path, Line: top.Line, Reason: "is not a list of options (key: value)"}}
	}

	var out []*UserFault
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		switch {
		case slices.Contains(s.ManagedHere(), key.Value):
			out = append(out,
				&UserFault{
					File:   path,
					Line:   key.Line,
					Option: key.Value,
					Reason: "is set by the appliance and must not be given here",
				})
		case slices.Contains(settings.Insecure(), key.Value) && !isFalse(value):
			allowed := slices.Contains(s.AllowInsecure, key.Value)
			f := &UserFault{
				File:     path,
				Line:     key.Line,
				Option:   key.Value,
				Insecure: true,
				Allowed:  allowed,
				Reason:   "is on",
			}

			if !allowed {
				f.Reason = "lets every minion in; if you mean it, add it to allow_insecure in appliance.yaml"
			}

			out = append(out, f)
		}
	}

	return out
}

// yamlFault splits a text such as "yaml: line 3: text" into line and reason. For faults of its
// parser the YAML library counts lines from zero, and omits line zero. For faults of its scanner it
// counts them from one.
func yamlFault(err error) (line int, reason string) {
	reason = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(reason, "line "); ok {
		number, text, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			line, reason = n, text
		}
	}
	switch reason {
	case "did not find expected node content",
		"did not find expected key",
		"did not find expected ',' or ']'",
		"did not find expected ',' or '}'",
		"did not find expected '-' indicator",
		"did not find expected <document start>":
		line++
	}
	return line, reason
}

// isFalse reports whether Salt's YAML loader reads a word as false (YAML 1.1).
func isFalse(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode {
		return false
	}
	return slices.Contains([]string{"false", "no", "off", "", "~", "null", "0"}, strings.ToLower(n.Value))
}
