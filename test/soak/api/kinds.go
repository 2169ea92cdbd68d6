package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// kind is one kind of request.
type kind struct {
	name  string
	share int // of 10,000
	want  int
	do    func(context.Context, *client) error
}

const (
	ping     = `{"client": "local", "tgt": "m0", "fun": "test.ping"`
	answered = `{"return": [{"m0": true}]}`
)

func kinds() []kind {
	get := func(path string, share, want int) kind {
		return plain("GET "+path, share, want,
			func(c *client) (string, string, string, string) { return "GET", path, c.token, "" })
	}

	post := func(name, path, body string, share, want int) kind {
		return plain(name, share, want,
			func(c *client) (string, string, string, string) { return "POST", path, c.token, body })
	}

	return []kind{
		get("/", 2000, 200), get("/stats", 4700, 200), get("/keys", 150, 200), get("/minions/m0", 100,
			200), get("/minions", 20, 200),
		get("/nowhere", 300, 404),
		plain("GET /jobs/JID", 100, 200,
			func(c *client) (string, string, string, string) { return "GET", "/jobs/" + c.job, c.token, "" }),
		plain("without a token", 500, 401,
			func(*client) (string, string, string, string) { return "GET", "/stats", "", "" }),
		post("POST /hook", "/hook/soak", `{"x": [1, 2, 3]}`, 300, 200),
		post("broken body", "/", `[{"client": "local", `, 400, 400),
		post("no such client", "/", `[{"client": "nobody", "fun": "test.ping"}]`, 300, 400),
		{"GET /jobs", 1, 200, listJobs},
		{"local test.ping", 300, 200, func(ctx context.Context, c *client) error {
			return c.checked(ctx, "local test.ping", "/", c.token, "["+ping+"}]", answered)
		}},
		{"/run test.ping", 100, 200, func(ctx context.Context, c *client) error {
			return c.checked(ctx, "/run test.ping", "/run", "", "["+ping+`, "token": "`+c.token+`"}]`, answered)
		}},
		{"runner test.arg", 100, 200, func(ctx context.Context, c *client) error {
			return c.checked(ctx, "runner test.arg", "/", c.token,
				`[{"client": "runner", "fun": "test.arg", "arg": ["x"]}]`, `"x"`)
		}},
		{"POST /minions", 50, 202, startJob},
		{"log-in", 100, 200, logInOrOut},
		{"wrong token", 10, 401, wrongToken},
		{"wrong password", 10, 401, wrongPassword},
		{"hangs up in a body", 150, 0, func(ctx context.Context, c *client) error {
			c.f.count.add("hangs up in a body", 0)
			return c.leave(ctx, c.head("POST", "/", c.token, 1000)+"[", false)
		}},
		{"resets", 100, 0, func(ctx context.Context, c *client) error {
			c.f.count.add("resets", 0)
			return c.leave(ctx, c.head("GET", "/stats", c.token, 0), true)
		}},
		{"hangs up in a job", 20, 0, func(ctx context.Context, c *client) error {
			c.f.count.add("hangs up in a job", 0)
			return c.leave(ctx, c.head("POST", "/", c.token, len(ping)+3)+"["+ping+"}]", false)
		}},
	}
}

// wanted are the status of all kinds.
func wanted() map[string][]int {
	out := map[string][]int{"/events": {200}, "log-out": {200}}
	for _, k := range kinds() {
		out[k.name] = []int{k.want}
	}
	return out
}

// choose chooses a kind by its share.
func (c *client) choose() kind {
	all, sum := kinds(), 0
	for _, k := range all {
		sum += k.share
	}
	n := c.rand.IntN(sum)
	for _, k := range all {
		if n -= k.share; n < 0 {
			return k
		}
	}
	return all[0]
}

func plain(name string, share, want int, of func(*client) (method, path, token, body string)) kind {
	return kind{name, share, want, func(ctx context.Context, c *client) error {
		method, path, token, body := of(c)
		code, _, err := c.ask(ctx, method, path, token, body)
		if err == nil {
			c.f.count.add(name, code)
		}
		return err
	}}
}

// checked sends low data and compares the answer.
func (c *client) checked(ctx context.Context, name, path, token, low, want string) error {
	code, body, err := c.ask(ctx, "POST", path, token, low)
	if err != nil {
		return err
	}
	c.f.count.add(name, code)
	if code == http.StatusOK && !strings.Contains(string(body), want) {
		return fmt.Errorf("the answer is %.200s", body)
	}
	return nil
}

// listJobs asks for the list of all jobs one time of five: it is long, with thousands of jobs.
func listJobs(ctx context.Context, c *client) error {
	if c.rand.IntN(5) > 0 {
		return nil
	}
	code, _, err := c.ask(ctx, "GET", "/jobs", c.token, "")
	if err == nil {
		c.f.count.add("GET /jobs", code)
	}
	return err
}

func startJob(ctx context.Context, c *client) error {
	code, body, err := c.ask(ctx, "POST", "/minions", c.token, `[{"tgt": "m0", "fun": "test.ping"}]`)
	if err != nil {
		return err
	}
	c.f.count.add("POST /minions", code)
	var v struct{ Return []struct{ JID string } }
	if err := json.Unmarshal(body, &v); err != nil || len(v.Return) != 1 || v.Return[0].JID == "" {
		return fmt.Errorf("the answer is %.200s", body)
	}
	c.job = v.Return[0].JID
	return nil
}

// logInOrOut logs somebody in, who logs out the next time, nine times of ten.
func logInOrOut(ctx context.Context, c *client) error {
	if c.other == "" {
		token, err := c.logIn(ctx, "right")
		if c.rand.IntN(10) > 0 {
			c.other = token
		}
		return err
	}
	code, _, err := c.ask(ctx, "POST", "/logout", c.other, "")
	c.other = ""
	if err == nil {
		c.f.count.add("log-out", code)
	}
	return err
}

func wrongToken(ctx context.Context, c *client) error {
	if !c.mayErr() {
		return nil
	}
	code, _, err := c.ask(ctx, "GET", "/stats", c.randomToken(), "")
	if err == nil {
		c.f.count.add("wrong token", code)
	}
	return err
}

func wrongPassword(ctx context.Context, c *client) error {
	if !c.mayErr() {
		return nil
	}
	_, err := c.logIn(ctx, "wrong")
	return err
}
