package rules

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/mail"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/master/internal/optionmap"
	"saltern/master/saltlog"
	"saltern/master/value"
)

// Parse reads the option. It returns the rules that it can read, and an error for each of the
// others. No error quotes a value that may be secret.
func Parse(option []any) (all Rules, faults []error) {
	if len(option) > maxRules {
		faults = append(faults, fmt.Errorf("there are %d rules, and at most %d are read", len(option), maxRules))
		option = option[:maxRules]
	}

	for i, entry := range option {
		r, err := parseRule(entry, i+1)
		if err == nil && slices.ContainsFunc(all, func(o Rule) bool { return o.Name == r.Name }) {
			err = errors.New("another rule has the same name")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("rule %d: %w", i+1, err))
			continue
		}
		all = append(all, r)
	}

	return all, faults
}

// reader reads the keys of a map.
type reader struct{ optionmap.Reader }

// text returns the text of a key, or "" without the key.
func (r *reader) text(key string) string { return r.Line(key, 4<<10) }

// texts returns the texts of a key: a text, or a list of texts.
func (r *reader) texts(key string) []string {
	out := r.Texts(key, 1<<10)
	if len(out) > maxPatterns {
		r.Fail(key, "it has %d entries, and at most %d are read", len(out), maxPatterns)
	}
	return out
}

// number returns the number of a key, or preset without the key.
func (r *reader) number(key string, preset, low, high float64) float64 {
	v, given := r.Map.Get(key)
	if !given || v == nil {
		return preset
	}

	var n float64
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		n = v
	default:
		n = math.NaN()
	}

	if !(n >= low && n <= high) {
		r.Fail(key, "it has to be a number from %g to %g", low, high)
		return preset
	}

	return n
}

// seconds returns the duration of a key, which the option gives in seconds.
func (r *reader) seconds(key string, preset, least time.Duration) time.Duration {
	n := r.number(key, preset.Seconds(), least.Seconds(), (30 * 24 * time.Hour).Seconds())
	return time.Duration(n * float64(time.Second))
}

func parseRule(entry any, number int) (Rule, error) {
	m, ok := entry.(*value.Map)
	if !ok {
		return Rule{}, errors.New("it is not a map")
	}

	// YAML 1.1 reads the bare key "on" as the boolean true.
	if on, given := m.GetAny(true); given {
		m = m.Clone()
		m.Set("on", on)
	}

	in := reader{optionmap.Reader{Map: m}}
	r := Rule{
		Name:       in.text("name"),
		Minions:    in.texts("minions"),
		Functions:  in.texts("functions"),
		Codes:      in.texts("codes"),
		TargetType: in.text("target_type"),
		GoneFor:    in.seconds("gone_for", defaultGone, shortestAbsence),
		DeafFor:    in.seconds("deaf_for", defaultDeaf, shortestAbsence),
		Dedupe:     in.seconds("dedupe", defaultDedupe, 0),
		Limit:      int(in.number("limit", defaultLimit, 1, 10_000)),
	}

	if r.Name == "" {
		r.Name = "rule" + strconv.Itoa(number)
	}
	if len(r.Name) > maxName || strings.ContainsAny(r.Name, "/\\") {
		in.Fail("name", "it is longer than %d bytes, or contains a slash", maxName)
	}

	r.On = in.kinds()
	r.Target, _ = m.Get("target")
	if r.TargetType == "" {
		r.TargetType = "compound"
	}

	if hours := strings.Join(in.texts("quiet"), ","); hours != "" {
		quiet, err := parseQuiet(hours)
		if err != nil {
			in.Fail("quiet", "%w", err)
		}
		r.Quiet = quiet
	}

	r.To = in.destinations(r.Name)
	return r, in.Err()
}

func (r *reader) kinds() (on []Kind) {
	for _, name := range r.texts("on") {
		if !slices.Contains(kinds, Kind(name)) {
			r.Fail("on", "there is no %.40q; there are %s", name, KindNames())
			return nil
		}
		if !slices.Contains(on, Kind(name)) {
			on = append(on, Kind(name))
		}
	}
	if len(on) == 0 {
		r.Fail("on", "it has to name one of %s", KindNames())
	}
	return on
}

// KindNames lists the kinds that a rule may name, for messages.
func KindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, string(k))
	}
	return strings.Join(names, ", ")
}

func (r *reader) destinations(rule string) (to []Destination) {
	v, _ := r.Map.Get("to")
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}

	if len(list) > maxDestinations {
		r.Fail("to", "it has %d entries, and at most %d are used", len(list), maxDestinations)
		return nil
	}

	for i, entry := range list {
		d, err := parseDestination(entry)
		if err != nil {
			r.Fail("to", "destination %d: %w", i+1, err)
			return nil
		}
		d.Name = fmt.Sprintf("%s/%d", rule, i+1)
		d.identify(rule)
		if slices.ContainsFunc(to, func(o Destination) bool { return o.ID == d.ID }) {
			r.Fail("to", "destination %d: another one of the rule has the same address", i+1)
			return nil
		}
		to = append(to, d)
	}

	if len(to) == 0 {
		r.Fail("to", "it names no destination")
	}

	return to
}

func parseDestination(entry any) (Destination, error) {
	m, ok := entry.(*value.Map)
	if !ok {
		return Destination{}, errors.New("it is not a map with url, mail or syslog")
	}

	in := reader{optionmap.Reader{Map: m}}
	ways := 0
	for _, key := range []string{"url", "url_file", "mail", "syslog"} {
		if _, given := m.Get(key); given {
			ways++
		}
	}
	if ways != 1 {
		return Destination{}, errors.New("it has to have one of url, url_file, mail and syslog")
	}

	var d Destination
	switch {
	case m.Value("mail") != nil:
		d.Mail = in.mail()
	case m.Value("syslog") != nil:
		d.Syslog = in.syslog()
	default:
		d.Web = in.web()
	}

	return d, in.Err()
}

// secret returns the secret of a key, or of the file that the key with "_file" names.
func (r *reader) secret(key string) Secret {
	text, file := r.text(key), r.text(key+"_file")
	switch {
	case text != "" && file != "":
		r.Fail(key, "%s_file is set as well", key)
	case text != "":
		return NewSecret(text)
	case file != "" && !filepath.IsAbs(file):
		r.Fail(key+"_file", "it has to be a whole path")
	case file != "":
		return FileSecret(file)
	}
	return Secret{}
}

func (r *reader) web() *Web {
	w := &Web{URL: r.secret("url"), Token: r.secret("token"), Form: Form(r.text("form")), CA: r.text("ca")}
	if w.Form == "" {
		w.Form = Generic
	}
	if !slices.Contains([]Form{Generic, Slack, Teams}, w.Form) {
		r.Fail("form", "there are generic, slack and teams")
	}
	if !w.URL.IsSet() {
		r.Fail("url", "it is empty")
	}
	if text := r.text("url"); text != "" {
		if _, err := ParseURL(text); err != nil {
			r.Fail("url", "%w", err)
		}
	}
	return w
}

// ParseURL reads the URL of a web hook. The error does not quote it, because it may be secret.
func ParseURL(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" {
		return nil, errors.New("it is no URL that begins with https:// or http:// and a host")
	}
	return u, nil
}

func (r *reader) mail() *Mail {
	m := &Mail{
		Server:   r.text("server"),
		TLS:      TLS(r.text("tls")),
		From:     r.text("from"),
		To:       r.texts("mail"),
		User:     r.text("user"),
		Password: r.secret("password"),
		CA:       r.text("ca"),
	}

	host, port, err := net.SplitHostPort(m.Server)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 || host == "" {
		r.Fail("server", "it has to be a host and a port, like mail.example.com:587")
	}

	if m.TLS == "" {
		m.TLS = StartTLS
	}
	if !slices.Contains([]TLS{StartTLS, Direct, Clear}, m.TLS) {
		r.Fail("tls", "there are starttls, tls and none")
	}

	if m.User == "" == m.Password.IsSet() {
		r.Fail("user", "user and password belong together")
	}
	if m.TLS == Clear && m.User != "" {
		r.Fail("tls", "a password would be sent in clear; set starttls or tls")
	}

	if len(m.To) == 0 {
		r.Fail("mail", "it names no address")
	}
	for _, address := range append([]string{m.From}, m.To...) {
		if !plainAddress(address) {
			r.Fail("mail", "%.80q is no mail address; from and mail take addresses like ops@example.com", address)
		}
	}

	return m
}

// plainAddress reports whether text is a mail address without a name, in ASCII.
func plainAddress(text string) bool {
	a, err := mail.ParseAddress(text)
	ascii := !strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c >= 0x7f })
	return err == nil && a.Address == text && ascii && len(text) <= 254
}

func (r *reader) syslog() *saltlog.Address {
	text := r.text("syslog")
	a, err := saltlog.ParseAddress(text)
	switch {
	case err != nil:
		r.Fail("syslog", "%w", err)
	case a == nil && r.Err() == nil:
		r.Fail("syslog", "there are file:///dev/log, udp://HOST:PORT and tcp://HOST:PORT, each with a facility like /LOG_LOCAL0")
	}
	return a
}
