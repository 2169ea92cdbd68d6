package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/durable"
	"saltern/master/event"
	"saltern/master/internal/batch"
	"saltern/master/internal/source"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// Config holds the location of the master and the parts of the configuration that the Client needs.
// The comments of fields name Salt's options.
type Config struct {
	Interface  string        // interface; an unspecified address means the loopback
	RetPort    int           // ret_port
	SockDir    string        // sock_dir
	CacheDir   string        // cachedir
	MasterUser string        // user: the account that the master runs as
	Timeout    time.Duration // timeout: how long to wait for a return before asking about the job
	Gather     time.Duration // gather_job_timeout: how long to wait for the answers about the job
	Publish    time.Duration // publish_timeout: longest time for one request, but at least three times Timeout
	HashType   string        // hash_type: hash function for the folders of the job cache
	ExtCache   string        // ext_job_cache: a returner for all jobs
	Nodegroups *value.Map    // nodegroups: map from a name to a text or a list
	ConfFile   string        // configuration file that error messages name
	// LowerMasters (order_masters) means that minions below syndics may answer although the master
	// does not list them.
	LowerMasters bool
	// SyndicWait (syndic_wait) is how long the client waits for syndics to report which minions got
	// a job.
	SyndicWait time.Duration

	User  string // user on whose behalf the client acts; see CurrentUser
	Token string // a saved token of mk_token; "" for none
	// NoKey means that the client sends no key of a system user: the master can authenticate the
	// caller only by a token or a password.
	NoKey bool
	// SourceKey is the key with which this client proves the address on whose behalf it sends a
	// command (package source). The context of a call carries that address. If SourceKey is "", the
	// client names no address.
	SourceKey string
	// Shared holds connections that several clients use. It may be nil: the client has private
	// connections.
	Shared *Shared
	// Page means that a page shows the results of runners, and asks again soon; see [PageField].
	Page bool
	// The client calls Answered once, after the master's first answer or when no answer will
	// arrive. proven means that the master accepted the token or password of the request. Answered
	// may be nil.
	Answered func(proven bool)
	// The client calls OldFiles when a minion of a job gets outdated files; see
	// [event.TagOldFiles]. The gathering goroutine calls it before it yields the minion's return.
	// OldFiles may be nil.
	OldFiles func(OldFiles)
	Log      *slog.Logger
	Now      func() time.Time // nil means time.Now
}

// Client publishes jobs and gathers returns. Only one goroutine may use a Client. It must call
// Close when it no longer needs the Client.
type Client struct {
	cfg    Config
	key    string
	events *stream
	sender *event.Sender
}

// New returns a client and reads the key of the calling user from cachedir. It does not fail if it
// cannot read the key, since the caller may use external authentication.
func New(cfg Config) *Client {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	c := &Client{cfg: cfg}
	c.key = c.readKey()
	if cfg.Shared != nil {
		c.sender = cfg.Shared.sender
	} else {
		c.sender = event.NewSender(cfg.SockDir)
	}
	return c
}

// Close closes the client's connections.
func (c *Client) Close() {
	if c.events != nil {
		c.events.close()
		c.events = nil
	}
	if c.cfg.Shared == nil {
		c.sender.Close()
	}
}

// KeyUser returns the user whose key file the client reads. For root and for callers through sudo
// it is the master's own user (salt/client/__init__.py __read_master_key).
func KeyUser(user, masterUser string) string {
	masterUser = cmp.Or(masterUser, "root")
	if user == "root" || strings.HasPrefix(user, "sudo_") {
		return masterUser
	}
	return user
}

// maxKeyFile bounds a key file in bytes. A key has 76 bytes.
const maxKeyFile = 4 << 10

func (c *Client) readKey() string {
	if c.cfg.NoKey {
		return ""
	}
	key, err := ReadKey(c.cfg.CacheDir, c.cfg.User, c.cfg.MasterUser)
	if err != nil {
		c.cfg.Log.Debug("no key file of this user", "error", err)
	}
	return key
}

// ReadKey returns the key by which the master recognises a user of this host.
func ReadKey(cacheDir, user, masterUser string) (string, error) {
	name := KeyUser(user, masterUser)
	if strings.ContainsAny(name, "/\x00") {
		return "", errors.New("the user's name is none of a file")
	}
	// The folder belongs to the master's account. Do not follow a link there: otherwise that
	// account could cause root to send another file.
	b, err := durable.Read(filepath.Join(cacheDir, "."+name+"_key"), maxKeyFile)
	return string(b), err
}

// Request is a job to publish.
type Request struct {
	Target     any    // text, or a list of text
	TargetType string // glob, list, compound, … as in Salt
	Fun        any    // text, or a list of text for a compound command
	Arg        []any
	Return     string     // returners on the minions, separated by commas
	JID        string     // job id; "" means that the master creates one
	Kwargs     *value.Map // fields of the load: metadata, token, delimiter, …; the job cache stores them
	Timeout    time.Duration
}

// Job is the master's answer to a Request.
type Job struct {
	JID     string
	Minions []string // minions that are expected to answer
	Missing []string // minions that the target names but that have no accepted key
	Down    []string // minions that do not get the job of a batch, because they have not answered a ping
}

// Publish sends a job to the master. It returns ErrNoMinions if the target matches no minion.
func (c *Client) Publish(ctx context.Context, r Request) (Job, error) {
	return c.publish(ctx, r, c.timeout(r), "publish", nil)
}

// publish sends a job to the master by a command of the master. spec is the map of a [batch.Spec]; it
// is nil for a job that all minions get at once.
func (c *Client) publish(
	ctx context.Context,
	r Request,
	timeout time.Duration,
	command string,
	spec *value.Map,
) (Job, error) {
	if _, err := os.Stat(filepath.Join(c.cfg.SockDir, "publish_pull.ipc")); err != nil {
		c.cfg.Log.Error("Unable to connect to the salt master publisher at " + c.cfg.SockDir)
		return Job{}, errContact()
	}

	tgt, typ, err := c.target(r.Target, r.TargetType)
	if err != nil {
		return Job{}, err
	}

	ret := r.Return
	if c.cfg.ExtCache != "" {
		ret = strings.TrimPrefix(ret+","+c.cfg.ExtCache, ",")
	}

	load := value.NewMap("cmd", command, "tgt", tgt, "fun", r.Fun, "arg", r.Arg,
		"key", c.key, "tgt_type", typ, "ret", ret, "jid", r.JID)
	if r.Kwargs.Len() > 0 {
		load.Set("kwargs", r.Kwargs)
	}

	if spec != nil {
		load.Set(batch.Field, spec)
	}

	load.Set("user", c.cfg.User)
	c.sayLogin(load)
	if c.cfg.LowerMasters { // a syndic waits this long for its minions
		load.Set("to", int64(timeout/time.Second))
	}

	reply, err := c.sendRequest(ctx, load, timeout)
	if err != nil {
		return Job{}, err
	}

	if !value.Truth(reply) {
		// The master may have written new keys since this client read its key.
		key := c.readKey()
		if key == c.key {
			return Job{}, jobError(reply)
		}

		c.key = key
		load.Set("key", key)
		if reply, err = c.sendRequest(ctx, load, timeout); err != nil {
			return Job{}, err
		}
	}

	return c.jobOf(reply)
}

// jobError returns the error for an answer that contains no job. If the answer is a text, the
// master has refused the caller; otherwise it has started no job.
func jobError(reply any) error {
	if reply == "" {
		return &Error{Kind: Authentication, Message: "Failed to authenticate! This is most likely because this " +
			"user is not permitted to execute commands, but there is a " +
			"small possibility that a disk error occurred (check disk/inode usage)."}
	}
	return ErrNoJob
}

func (c *Client) jobOf(reply any) (Job, error) {
	if !value.Truth(reply) {
		return Job{}, jobError(reply)
	}

	if s, ok := reply.(string); ok {
		return Job{}, &Error{Kind: General, Message: s}
	}

	m, ok := reply.(*value.Map)
	if !ok {
		return Job{}, &Error{Kind: General, Message: fmt.Sprintf("unexpected answer of the master: %T", reply)}
	}

	if err := ErrorIn(m); err != nil {
		return Job{}, err
	}

	load := m.Map("load")
	job := Job{
		JID:     load.Str("jid"),
		Minions: load.Texts("minions"),
		Missing: load.Texts("missing"),
		Down:    load.Texts("down"),
	}
	begun := job.JID != "" && job.JID != "0"
	if len(job.Minions) == 0 && !(begun && c.cfg.LowerMasters) {
		return Job{}, ErrNoMinions
	}
	if !begun {
		return Job{}, ErrNoJob
	}

	return job, nil
}

// Ask sends an unencrypted request (mk_token, runner, wheel, …) to the master and returns the
// decoded answer.
func (c *Client) Ask(ctx context.Context, load *value.Map) (any, error) {
	return c.sendRequest(ctx, load, c.cfg.Timeout)
}

// answerLimits bounds the decoding of an answer. The largest answers are lists of ids.
var answerLimits = msgpack.Limits{Depth: 64, Nodes: 4 << 20}

// sendRequest sends one request. It does not repeat a request after a timeout, since the master may
// have executed it.
func (c *Client) sendRequest(ctx context.Context, load *value.Map, timeout time.Duration) (any, error) {
	if from := source.Of(ctx); from.IsValid() {
		source.Say(load, c.cfg.SourceKey, from)
	}

	payload, err := msgpack.Marshal(value.NewMap("enc", "clear", "load", load, "version", 3), msgpack.Raw)
	if err != nil {
		return nil, &Error{Kind: General, Message: fmt.Sprintf("arguments cannot be sent: %v", err)}
	}

	ctx, cancel := context.WithTimeout(ctx, max(3*timeout, c.cfg.Publish))
	defer cancel()
	req, err := c.cfg.Shared.takeConnection(ctx, c.address())
	if err != nil {
		if ctx.Err() != nil {
			return nil, c.lateError(ctx)
		}
		c.cfg.Log.Error("cannot connect to the master", "error", err)
		return nil, errContact()
	}

	b, err := req.Do(ctx, payload)
	if err != nil {
		c.answered(nil)
		req.Close()
		if ctx.Err() != nil {
			return nil, c.lateError(ctx)
		}
		c.cfg.Log.Error("the master ended the connection before it answered", "error", err)
		return nil, errHungUp()
	}

	c.cfg.Shared.giveBack(req)
	v, err := msgpack.Decode(b, answerLimits)
	if err != nil {
		v = nil
		err = &Error{Kind: General, Message: fmt.Sprintf("answer of the master: %v", err)}
	}

	c.answered(v)
	return v, err
}

// answered calls Config.Answered if v is the first answer.
func (c *Client) answered(v any) {
	tell := c.cfg.Answered
	if tell == nil {
		return
	}
	c.cfg.Answered = nil
	m, proven := v.(*value.Map) // a refusal may be an empty text instead of a map
	if e, ok := errors.AsType[*Error](ErrorIn(m)); ok {
		proven = e.Kind != Authentication && e.Kind != Busy
	}
	tell(proven)
}

func (c *Client) lateError(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	return errLate()
}

// address returns the host:port to which the client sends requests. If the master's interface is
// unspecified, the host is the loopback address (salt/config/__init__.py client_config).
func (c *Client) address() string {
	host := strings.Trim(c.cfg.Interface, "[]")
	switch host {
	case "", "0.0.0.0":
		host = "127.0.0.1"
	case "::":
		host = "::1"
	}
	return net.JoinHostPort(host, strconv.Itoa(c.cfg.RetPort))
}

// sayLogin adds the caller's login name to a load for the master's audit record: without that name,
// the record would show every caller with root's key as root.
func (c *Client) sayLogin(load *value.Map) {
	if name := audit.LoginName(); name != "" && c.key != "" {
		load.Set(audit.LoginField, name)
	}
}

// fireFor is how long an event may take to reach the master's bus.
const fireFor = 5 * time.Second

// Fire puts an event on the master's bus, after all events that this client, or another client with
// the same Shared, has fired before. It requires the rights of root or of the master's account.
func (c *Client) Fire(ctx context.Context, tag string, data *value.Map) error {
	ctx, cancel := context.WithTimeout(ctx, fireFor)
	defer cancel()
	return c.sender.Fire(ctx, tag, data)
}

// ErrUnwell means that the master answers but cannot store jobs.
var ErrUnwell = errors.New("the master is unwell")

// Answers sends the master a ping. It returns nil if the master answers before ctx ends, otherwise
// an error with the reason.
func (c *Client) Answers(ctx context.Context) error {
	if !c.MasterIsUp() {
		return errContact()
	}

	payload, err := msgpack.Marshal(value.NewMap("enc", "clear", "load", value.NewMap("cmd", "ping"), "version", 3),
		msgpack.Raw)
	if err != nil {
		return fmt.Errorf("encode a ping: %w", err)
	}

	req, err := zmtp.DialReq(ctx, c.address(), zmtp.DialConfig{})
	if err != nil {
		return fmt.Errorf("connect to the master: %w", err)
	}
	defer req.Close()

	b, err := req.Do(ctx, payload)
	if err != nil {
		return fmt.Errorf("ask the master for a sign of life: %w", err)
	}

	v, err := msgpack.Decode(b, answerLimits)
	if err != nil {
		return fmt.Errorf("answer of the master: %w", err)
	}

	m, _ := v.(*value.Map)
	if trouble := m.Str(control.PingFault); trouble != "" {
		return fmt.Errorf("%w: %.200q", ErrUnwell, trouble)
	}
	if m.Str("cmd") != "ping" { // the master returns the load as it is (salt/master.py ClearFuncs.ping)
		return fmt.Errorf("the master answers %.100q to a ping", value.Repr(v))
	}

	return nil
}

// MasterIsUp reports whether the master's marker is in the socket directory. A master that was
// killed leaves its marker there, too.
func (c *Client) MasterIsUp() bool {
	_, err := os.Stat(filepath.Join(c.cfg.SockDir, "publish_pull.ipc"))
	return !errors.Is(err, fs.ErrNotExist)
}
