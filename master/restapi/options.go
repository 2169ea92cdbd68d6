package restapi

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"saltern/master/conf"
	"saltern/master/restapi/internal/console"
	"saltern/master/value"
)

// Options holds the section rest_cherrypy of a master's configuration
// (salt/netapi/rest_cherrypy/app.py) and the other options of salt-api.
type Options struct {
	Host, RootPrefix string
	Port             int
	Cert, Key, Chain string // PEM files; Cert is "" with disable_ssl
	MinionConf       string // file that everybody gets as /minion.conf; "" for none
	// Behind is the address on which salt-api listens for the load balancers. Balancers is the file
	// that names the load balancers. Both are "" without load balancers.
	Behind, Balancers  string
	Debug              bool   // answers to internal errors include the error's text
	AccessFile         string // log_access_file; "" for none
	Static, StaticPath string // folder of static files and its path in URLs; Static is "" for none
	App, AppPath       string // file of a page and its path in URLs; App is "" for none
	Favicon            string
	WebhookPath        string // path of hooks in URLs, one part without a slash
	WebhookOpen        bool   // anybody may fire hooks, without a log-in
	StatsOpen          bool   // /stats needs no log-in
	NoSessions         bool   // enable_sessions is False, so the console cannot work
	Console            bool   // serve the console at /console
	ConsoleFirst       bool   // browsers that ask for / get the console
	Workers, Queue     int    // most commands that run at once, and most commands that wait for a worker
	MaxBody            int64  // most bytes of a request's body
	MaxTimeout         int    // longest time that a caller may ask to wait, in seconds
	ACL                *value.Map
	HasACL             bool
	IPs                []string // addresses that may send requests; empty: all
	Origins            []string // other sites whose pages may send requests from a browser

	Clients  []string // netapi_enable_clients: kinds of commands that callers may use
	RawShell bool     // netapi_allow_raw_shell: callers may use raw_shell of salt-ssh
	Timeout  int      // rest_timeout: how long a caller waits for a runner, in seconds
}

const (
	// usualQueue is how many commands may wait for a worker by default. In Salt 30 connections wait
	// in the kernel, and more in Salt itself.
	usualQueue = 300
	usualWait  = 3600      // default of max_timeout, in seconds
	maxWait    = 24 * 3600 // upper bound of max_timeout, in seconds
)

// Read reads the options of salt-api from a configuration. The returned error joins all faults.
func Read(m *conf.Master, log *slog.Logger) (Options, error) {
	section, _ := m.Raw.Get("rest_cherrypy")
	raw, isMap := section.(*value.Map)
	given, at := m.Raw.Map("saltern_api"), ""
	if isMap || section == nil {
		at = behindBalancers(raw, given)
		raw = complete(raw, given)
	}

	if raw.Len() == 0 {
		return Options{}, fmt.Errorf("there is no section rest_cherrypy in %s; without it salt-api serves nothing: at least port, and ssl_crt and ssl_key or disable_ssl, are needed",
			m.Path)
	}

	r := reader{m: raw}
	o := Options{
		Host:         r.textOf("host", "0.0.0.0"),
		Port:         r.numberOf("port", 0, 65535),
		RootPrefix:   "/" + strings.Trim(r.textOf("root_prefix", "/"), "/"),
		Debug:        r.truthOf("debug"),
		AccessFile:   r.pathOf("log_access_file"),
		Favicon:      r.pathOf("favicon"),
		Static:       r.pathOf("static"),
		StaticPath:   "/" + strings.Trim(r.textOf("static_path", "/static"), "/"),
		App:          r.pathOf("app"),
		AppPath:      "/" + r.pathPartOf("app_path", "app"),
		WebhookPath:  r.pathPartOf("webhook_url", "hook"),
		Console:      r.truthOf("console"),
		ConsoleFirst: r.truthOf("console_redirect"),
		WebhookOpen:  r.truthOf("webhook_disable_auth"),
		StatsOpen:    r.truthOf("stats_disable_auth"),
		Workers:      r.numberOf("thread_pool", 100, 200),
		MaxBody:      int64(r.numberOf("max_request_body_size", 1<<20, 64<<20)),
		ACL:          raw.Map("api_acl"),
		HasACL:       value.Truth(raw.Value("api_acl")),
		IPs:          r.textsOf("authorized_ips"),
		Origins:      r.textsOf("cors_origin"),
		Clients:      m.Raw.Texts("netapi_enable_clients"),
		RawShell:     value.Truth(m.Raw.Value("netapi_allow_raw_shell")),
		Timeout:      300,
	}

	o.MinionConf = given.Str("minion_conf")
	if at != "" {
		o.Behind, o.Balancers = at, given.Str("balancers")
	}

	o.Queue = r.numberOf("socket_queue_size", r.numberOf("queue_size", usualQueue, 10000), 10000)
	if v, ok := raw.Get("enable_sessions"); ok {
		o.NoSessions = v == false
	}

	if n, ok := m.Raw.Int("rest_timeout"); ok && n > 0 {
		o.Timeout = int(min(n, maxWait))
	}

	o.MaxTimeout = max(r.numberOf("max_timeout", usualWait, maxWait), o.Timeout)
	if _, ok := raw.Get("port"); !ok {
		r.addFault("port", "is not there: say which port to listen on, as in port: 8000")
	}

	if !r.truthOf("disable_ssl") {
		o.Cert = r.pathOf("ssl_crt")
		o.Key = r.pathOf("ssl_key")
		o.Chain = r.pathOf("ssl_chain")
		if o.Cert == "" || o.Key == "" {
			r.addFault("ssl_crt",
				"and ssl_key are needed: name a certificate and its key, or set disable_ssl: True where nobody can listen")
		}
	}

	own, _ := section.(*value.Map)
	o.checkConsole(&r, own, log)
	o.logRemarks(raw, log)
	return o, errors.Join(r.faults...)
}

// checkConsole reports settings with which the console cannot work. written is the section as the
// administrator wrote it. If the appliance and not the administrator has switched the console on,
// checkConsole reports no fault and switches the console off.
func (o *Options) checkConsole(r *reader, written *value.Map, log *slog.Logger) {
	if !o.Console {
		if o.ConsoleFirst {
			r.addFault("console_redirect",
				"leads to the console, which is off: set console: True, or leave console_redirect out")
		}
		return
	}

	why := ""
	for name, path := range map[string]string{
		"static_path": o.StaticPath,
		"app_path":    o.AppPath,
		"webhook_url": "/" + o.WebhookPath,
	} {
		if path == console.Dir {
			why = name + " is where it would be"
		}
	}

	if o.NoSessions {
		why = "it takes log-ins, and enable_sessions is off"
	}

	_, said := written.Get("console")
	switch {
	case why == "":
	case said || o.ConsoleFirst:
		r.addFault("console", "cannot be: "+why+"; change that, or set console: False")
	default:
		o.Console = false
		log.Warn("there is no console", "because", why)
	}
}

// complete returns a section with those settings of the appliance that the section lacks. A section
// that contains any setting about TLS keeps its own TLS settings.
func complete(section, defaults *value.Map) *value.Map {
	out := &value.Map{}
	out.Update(section)
	own := false
	for _, k := range []string{"ssl_crt", "ssl_key", "ssl_chain"} {
		_, said := section.Get(k)
		own = own || said
	}

	own = own || value.Truth(section.Value("disable_ssl"))
	for _, k := range defaults.Keys() {
		if _, said := section.Get(k); !said && !(own && strings.HasPrefix(k, "ssl_")) && k != "behind" &&
			k != "balancers" && k != "minion_conf" {
			out.Set(k, defaults.Value(k))
		}
	}

	return out
}

// CheckCertificate returns why the certificate, its chain or its key cannot be used, or nil.
func (o *Options) CheckCertificate() error {
	if o.Cert == "" {
		return nil
	}
	_, err := certificate(*o)
	return err
}

// URL returns the address of salt-api for clients.
func (o *Options) URL() string {
	if o.Cert == "" {
		return "http://" + o.Address() + o.RootPrefix
	}
	return "https://" + o.Address() + o.RootPrefix
}

// ConsoleURL returns the address of the console for browsers, or "" when the console is off.
func (o *Options) ConsoleURL() string {
	if !o.Console {
		return ""
	}
	return strings.TrimSuffix(o.URL(), "/") + console.Dir + "/"
}

// logRemarks logs settings that may not have the effect that their author expects.
func (o *Options) logRemarks(raw *value.Map, log *slog.Logger) {
	for _, k := range raw.Keys() {
		use, why := conf.PartUse("rest_cherrypy", k)
		switch use {
		case "used":
		case "":
			log.Warn("option of rest_cherrypy is not known", "option", k)
		default:
			log.Info("option of rest_cherrypy changes nothing", "option", k, "because", why)
		}
	}

	if o.Cert == "" {
		log.Warn("disable_ssl is on: passwords and tokens pass the network in the clear")
	}

	if o.WebhookOpen {
		log.Warn("webhook_disable_auth is on: anybody fires events below salt/netapi/hook")
	}

	if len(o.Clients) == 0 {
		log.Warn("netapi_enable_clients is empty: no command is carried out")
	}

	for _, c := range o.Clients {
		switch {
		case c == "ssh":
			log.Warn("client ssh is not served here: salt-ssh is Python's, and so is the salt-api for it")
		case !slices.Contains(clientNames(), c):
			log.Warn("netapi_enable_clients names a client that does not exist", "client", c)
		}
	}
}

// Address returns the host:port on which salt-api listens.
func (o *Options) Address() string {
	return net.JoinHostPort(strings.Trim(o.Host, "[]"), strconv.Itoa(o.Port))
}

// reader reads values of a map and collects faults.
type reader struct {
	m      *value.Map
	faults []error
}

func (r *reader) addFault(name, text string) {
	r.faults = append(r.faults, fmt.Errorf("rest_cherrypy: %s %s", name, text))
}

func (r *reader) truthOf(name string) bool { return value.Truth(r.m.Value(name)) }

func (r *reader) textOf(name, preset string) string {
	v, ok := r.m.Get(name)
	if !ok || v == nil {
		return preset
	}
	s, ok := v.(string)
	if !ok {
		r.addFault(name, "must be text, not "+value.Repr(v))
	}
	return s
}

func (r *reader) pathOf(name string) string {
	s := r.textOf(name, "")
	if s != "" && !filepath.IsAbs(s) {
		r.addFault(name, "must be a whole path, as /etc/salt/"+filepath.Base(s))
	}
	return s
}

// pathPartOf reads an option that is one part of a URL's path.
func (r *reader) pathPartOf(name, preset string) string {
	s := strings.Trim(r.textOf(name, preset), "/")
	if s == "" || strings.Contains(s, "/") {
		r.addFault(name, "must be one part of a path, as /"+preset)
	}
	return s
}

func (r *reader) numberOf(name string, preset, limit int) int {
	v, ok := r.m.Get(name)
	if !ok || v == nil {
		return preset
	}
	n, ok := v.(int64)
	if !ok || n < 1 || n > int64(limit) {
		r.addFault(name, fmt.Sprintf("must be a number from 1 to %d, not %s", limit, value.Repr(v)))
		return preset
	}
	return int(n)
}

func (r *reader) textsOf(name string) []string {
	if s, ok := r.m.Value(name).(string); ok {
		return []string{s}
	}
	l := r.m.Texts(name)
	if v, ok := r.m.Get(name); ok && v != nil && len(l) == 0 {
		r.addFault(name, "must be a list of texts, not "+value.Repr(v))
	}
	return l
}
