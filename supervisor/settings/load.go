package settings

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/internal/onedoc"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"
)

// ErrNone means that the configuration file does not exist: the node is not configured yet, and its
// administrator should run the set-up. For a file with faults Load returns another error.
var ErrNone = errors.New("no configuration yet")

// maxFile bounds appliance.yaml in bytes, before it is parsed.
const maxFile = 1 << 20

// maxSocketPath is the largest length of a unix socket's path (unix(7): 108 bytes with the final
// NUL).
const maxSocketPath = 107

// Load reads and checks the file. hostname is the node's default name. If the file does not exist,
// the error is [ErrNone], otherwise a list of all faults.
func Load(path, hostname string) (*Settings, error) {
	f, _, err := durable.Open(path, durable.Follow)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrNone)
	}
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(b, path, hostname)
}

// IsEmpty reports whether the text of a file holds no setting. Such a file is valid: all settings have
// a default.
func IsEmpty(text []byte) bool {
	var doc yaml.Node
	if err := onedoc.Decode(text, &doc); err != nil {
		return false
	}
	return len(doc.Content) == 0 || doc.Content[0].ShortTag() == "!!null" ||
		doc.Content[0].Kind == yaml.MappingNode && len(doc.Content[0].Content) == 0
}

// OneLine formats an error in one line. It keeps all errors of a list, and all lines of an error.
func OneLine(err error) string {
	texts := []string{err.Error()}
	var me *multierror.Error
	if errors.As(err, &me) {
		texts = nil
		for _, e := range me.Errors {
			texts = append(texts, e.Error())
		}
	}

	line := ""
	for _, text := range texts {
		for part := range strings.FieldsFuncSeq(text, isLineBreak) {
			part = strings.TrimSpace(part)
			switch {
			case part == "":
				continue
			case line == "":
			case strings.HasSuffix(line, ":"):
				line += " "
			default:
				line += "; "
			}
			line += part
		}
	}

	return line
}

func isLineBreak(r rune) bool { return r == '\n' || r == '\r' }

// Parse parses and checks the text of a file. name is the file's name in messages.
func Parse(b []byte, name, hostname string) (*Settings, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("%s: larger than %d bytes", name, maxFile)
	}

	s := Default(hostname)
	var faults *multierror.Error
	if err := onedoc.DecodeKnown(b, &s); errors.Is(err, onedoc.ErrMore) {
		faults = multierror.Append(faults, fmt.Errorf("%s: %w", name, err))
	} else if err != nil {
		var te *yaml.TypeError
		if !errors.As(err, &te) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}

		for _, m := range te.Errors {
			faults = multierror.Append(faults,
				fmt.Errorf("%s: %s", name, strings.Replace(m, "in type settings.", "in ", 1)))
		}
	}

	if s.Storage.Path == "" && s.OnVolume() {
		s.Storage.Path = "/srv/cluster"
	} else if s.Storage.Path == "" {
		s.Storage.Path = filepath.Join(s.DataDir, "cluster")
	}

	s.Storage.Bricks = cmp.Or(s.Storage.Bricks, filepath.Join(s.DataDir, "bricks"))
	for _, err := range s.faults() {
		faults = multierror.Append(faults, fmt.Errorf("%s: %w", name, err))
	}

	if err := faults.ErrorOrNil(); err != nil {
		return nil, err
	}

	return &s, nil
}

// maxURL bounds an address, in bytes.
const maxURL = 2000

// maxAPINames bounds the number of names in a certificate.
const maxAPINames = 16

var (
	volumeName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	userName   = regexp.MustCompile(`^[a-z_][a-z0-9_-]{0,31}$`)
)

// Insecure returns the options that allow_insecure must name before they may be set.
func Insecure() []string { return []string{"open_mode", "auto_accept"} }

// managed returns the master options that the appliance sets itself. An administrator who set one
// of them would break the node.
func managed() []string {
	return []string{
		"interface", "publish_port", "ret_port", "pki_dir", "cachedir", "sock_dir", "pidfile", "user", "root_dir",
		"default_include", "id", "saltern_conditions", "saltern_node", "saltern_door", "saltern_python_layer",
		"saltern_front_publish_port", "saltern_proxy_from", "saltern_api", "conf_file", "log_file", "transport",
	}
}

// managedInCluster returns the options that the appliance sets itself on a node of a cluster
// (peering.enabled), in addition to those of managed.
func managedInCluster() []string {
	return []string{"cluster_id", "cluster_peers", "cluster_pki_dir", "cluster_secret", "cluster_pool_port",
		"cluster_pub_fingerprint", "include", "saltern_supervisor"}
}

// ManagedHere returns all options that the appliance sets itself on this node.
func (s *Settings) ManagedHere() []string {
	if s.Peering.Enabled {
		return append(managed(), managedInCluster()...)
	}
	return managed()
}

func (s *Settings) faults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if !control.PlainName(s.Node) || strings.Contains(s.Node, "..") {
		bad("node: %q is not a host name (letters, digits, dot, dash, at most 63)", s.Node)
	}

	if !control.PlainName(s.Cluster) {
		bad("cluster: %q is not a plain name (letters, digits, dot, dash, at most 63)", s.Cluster)
	}

	for key, path := range map[string]string{
		"data_dir":       s.DataDir,
		"runtime_dir":    s.RuntimeDir,
		"storage.path":   s.Storage.Path,
		"storage.bricks": s.Storage.Bricks,
	} {
		if !filepath.IsAbs(path) || filepath.Clean(path) == "/" || strings.ContainsAny(path, "\n\x00") {
			bad("%s: %q is not an absolute path below /", key, path)
		}
	}

	for _, p := range []string{s.APISocket(), s.LBSocket(), filepath.Join(s.MasterSockDir(), "master_event_pull.ipc")} {
		if len(p) > maxSocketPath {
			bad("runtime_dir: too long: the socket %s would have %d bytes, the system allows %d", p, len(p),
				maxSocketPath)
			break
		}
	}

	errs = append(errs, s.addressFaults()...)
	if !slices.Contains([]string{LocalStorage, DirectoryStorage, VolumeStorage}, s.Storage.Kind) {
		bad("storage.kind: %q is not known (local, directory, volume)", s.Storage.Kind)
	}

	if !volumeName.MatchString(s.Storage.Volume) {
		bad("storage.volume: %q is not a plain name (letters, digits, dash, underscore, at most 64)", s.Storage.Volume)
	}

	if s.LB.Balance != "leastconn" && s.LB.Balance != "roundrobin" {
		bad("lb.balance: %q is not known (leastconn, roundrobin)", s.LB.Balance)
	}

	for key, name := range map[string]string{
		"users.master":      s.Users.Master,
		"users.lb":          s.Users.LB,
		"users.admin_group": s.Users.Admin,
	} {
		if name != "" && !userName.MatchString(name) {
			bad("%s: %q is not an account name", key, name)
		}
	}

	for key, path := range map[string]string{
		"programs.master":     s.Programs.Master,
		"programs.lb":         s.Programs.LB,
		"webhook.secret_file": s.Webhook.SecretFile,
	} {
		if path != "" && !filepath.IsAbs(path) {
			bad("%s: %q is not an absolute path", key, path)
		}
	}

	for _, n := range s.API.Names[:min(len(s.API.Names), maxAPINames)] {
		if !control.PlainName(strings.TrimPrefix(n, "*.")) {
			bad("api.names: %.70q is not a host name (salt.example.org)", n)
		}
	}

	if len(s.API.Names) > maxAPINames {
		bad("api.names: more than %d", maxAPINames)
	}

	errs = append(errs, s.limitFaults()...)
	errs = append(errs, s.optionFaults()...)
	errs = append(errs, s.backupFaults()...)
	errs = append(errs, s.upgradeFaults()...)

	if !slices.Contains([]string{"debug", "info", "warn", "error"}, s.Log.Level) {
		bad("log.level: %q is not known (debug, info, warn, error)", s.Log.Level)
	}

	for key, l := range map[string]string{"metrics.listen": s.Metrics.Listen, "webhook.listen": s.Webhook.Listen} {
		if a, err := netip.ParseAddrPort(l); l != "" && (err != nil || a.Port() == 0 || a.Addr().Zone() != "") {
			bad("%s: %q is not an IP address with port (127.0.0.1:4522), nor empty", key, l)
		}
	}

	if l := s.Webhook.Listen; l != "" && l == s.Metrics.Listen {
		bad("webhook.listen: %q is that of metrics.listen: choose another port (4523)", l)
	}

	if s.Log.Format != "text" && s.Log.Format != "json" {
		bad("log.format: %q is not known (text, json)", s.Log.Format)
	}

	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// limitFaults returns the faults of the keys below limits.
func (s *Settings) limitFaults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if l := s.Limits; l.DiskFullPercent < 0 || l.DiskLowPercent < l.DiskFullPercent || l.DiskLowPercent > 90 {
		bad("limits: 0 <= disk_full_percent (%g) <= disk_low_percent (%g) <= 90 does not hold",
			l.DiskFullPercent, l.DiskLowPercent)
	}

	if s.Limits.StopTimeout < 1e9 || s.Limits.StopTimeout > 300e9 {
		bad("limits.stop_timeout: %s is not between 1s and 5m", s.Limits.StopTimeout)
	}

	for key, percent := range map[string]int{
		"limits.master_memory": s.Limits.MasterMemory,
		"limits.lb_memory":     s.Limits.LBMemory,
	} {
		if percent != 0 && (percent < 10 || percent > 95) {
			bad("%s: %d is neither 0 (no bound) nor between 10 and 95 (percent of the machine's memory)", key, percent)
		}
	}

	return errs
}

// optionFaults returns the faults of the master's options in appliance.yaml.
func (s *Settings) optionFaults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, o := range s.AllowInsecure {
		if !slices.Contains(Insecure(), o) {
			bad("allow_insecure: %q is not known (%s)", o, strings.Join(Insecure(), ", "))
		}
	}

	for _, o := range s.ManagedHere() {
		if _, given := s.Master.Options[o]; given {
			bad("master.options: %s is set by the appliance", o)
		}
	}

	for _, o := range Insecure() {
		if v, given := s.Master.Options[o]; given && v != false && !slices.Contains(s.AllowInsecure, o) {
			bad("master.options: %s lets every minion in; if you mean it, add it to allow_insecure", o)
		}
	}

	return errs
}

func (s *Settings) addressFaults() (errs []error) {
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for key, port := range map[string]int{
		"front.publish_port":  s.Front.PublishPort,
		"front.request_port":  s.Front.RequestPort,
		"master.publish_port": s.Master.PublishPort,
		"master.request_port": s.Master.RequestPort,
		"master.api_port":     s.Master.APIPort,
		"peering.node_port":   s.Peering.NodePort,
		"peering.pool_port":   s.Peering.PoolPort,
	} {
		if port < 1 || port > 65535 {
			bad("%s: %d is not a port", key, port)
		}
	}

	if p := s.Front.APIPort; p < 0 || p > 65535 {
		bad("front.api_port: %d is neither a port nor 0", p)
	}

	if s.APIBehind() {
		for _, p := range []int{s.Front.PublishPort, s.Front.RequestPort} {
			if p == s.Front.APIPort {
				bad("front: api_port %d is that of minions as well", p)
			}
		}

		for _, p := range []int{s.Master.PublishPort, s.Master.RequestPort, s.Peering.NodePort, s.Peering.PoolPort} {
			if p == s.Master.APIPort {
				bad("master: api_port %d is taken by the node already", p)
			}
		}
	}

	if p := s.Peering; p.Enabled {
		if a, err := netip.ParseAddr(p.Address); err != nil || a.Zone() != "" || a.IsUnspecified() {
			bad("peering.address: %q is not an IP address of this node", p.Address)
		} else if p.Address != s.Master.Address {
			bad("peering.address: %s and master.address %s must be the same", p.Address, s.Master.Address)
		}

		if p.NodePort == p.PoolPort {
			bad("peering: node_port and pool_port are both %d", p.NodePort)
		}
	}

	if s.Front.PublishPort == s.Front.RequestPort {
		bad("front: publish_port and request_port are both %d", s.Front.PublishPort)
	}

	if s.Master.PublishPort == s.Master.RequestPort {
		bad("master: publish_port and request_port are both %d", s.Master.PublishPort)
	}

	if len(s.Front.Addresses) == 0 {
		bad("front.addresses: empty")
	}

	own, err := netip.ParseAddr(s.Master.Address)
	if err != nil || own.Zone() != "" {
		bad("master.address: %q is not an IP address", s.Master.Address)
	}

	for _, a := range s.Front.Addresses {
		ip, err := netip.ParseAddr(a)
		if err != nil || ip.Zone() != "" {
			bad("front.addresses: %q is not an IP address", a)
			continue
		}
		if !s.LB.Enabled || ip != own && !ip.IsUnspecified() {
			continue
		}

		ports := []int{s.Front.PublishPort, s.Front.RequestPort}
		if s.APIBehind() {
			ports = append(ports, s.Front.APIPort)
		}

		for _, p := range ports {
			if p == s.Master.PublishPort || p == s.Master.RequestPort || s.APIBehind() && p == s.Master.APIPort {
				bad("front: port %d is the master's as well", p)
			}
		}
	}

	return errs
}
