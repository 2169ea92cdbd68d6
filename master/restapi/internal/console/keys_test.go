package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// keyring is a master with keys that change as they would.
type keyring struct {
	recorded
	pending  map[string]string // fingerprint by id
	accepted []string
	calls    int
	failAt   int // number of the key.accept_dict that fails; 0: none
}

func (k *keyring) Do(ctx context.Context, token string, low *value.Map) (any, error) {
	var ids []string
	fingers := value.NewMap()
	for id := range k.pending {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		fingers.Set(id, k.pending[id])
	}

	switch low.Str("fun") {
	case "key.list_all":
		return wheel(value.NewMap("minions_pre", value.List(ids), "minions", value.List(k.accepted))), nil
	case "key.finger":
		return wheel(value.NewMap("minions_pre", fingers)), nil
	case "key.accept_dict":
		if k.calls++; k.calls == k.failAt {
			return value.NewMap("data", value.NewMap("success", false, "return", "no space left on device")), nil
		}
		for _, id := range low.Map("match").Texts("minions_pre") {
			delete(k.pending, id)
			k.accepted = append(k.accepted, id)
		}
		return wheel(value.NewMap()), nil
	}

	return k.recorded.Do(ctx, token, low)
}

func newKeyring(n int) *keyring {
	k := &keyring{recorded: recorded{answers: theAnswers()}, pending: map[string]string{}}
	for i := range n {
		k.pending[fmt.Sprintf("web%04d", i)] = strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%02x:", i%256), 32), ":")
	}
	return k
}

var hiddenField = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// confirmed returns the form on a page of confirmation, as a browser sends it.
func confirmed(page string) url.Values {
	_, page, _ = strings.Cut(page, "<main")
	form := url.Values{}
	for _, field := range hiddenField.FindAllStringSubmatch(page, -1) {
		form.Add(field[1], field[2])
	}
	return form
}

// TestAllKeysOfPattern: what is confirmed are the keys that were shown, not the pattern.
func TestAllKeysOfPattern(t *testing.T) {
	c := newConsole(t, "")
	k := newKeyring(300)
	k.pending["db1"] = "01:02"
	a := ask(t, c, k, http.MethodGet, "/keys/confirm?all=accept&state=minions_pre&q=web*", nil)
	form := confirmed(a.Body)
	if len(form["id"]) != 300 || len(form["finger"]) != 300 || slices.Contains(form["id"], "db1") {
		t.Fatalf("%d keys with %d fingerprints", len(form["id"]), len(form["finger"]))
	}

	k.pending["web9999"] = "66:66" // it comes after the preview
	k.pending["web0007"] = "66:67" // it is another key now
	delete(k.pending, "web0008")
	a = ask(t, c, k, http.MethodPost, "/keys", form)
	if a.Code != http.StatusSeeOther {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}

	for _, id := range []string{"web9999", "web0007", "db1"} {
		if k.pending[id] == "" || slices.Contains(k.accepted, id) {
			t.Errorf("%s was accepted", id)
		}
	}

	if len(k.accepted) != 298 || slices.Contains(k.accepted, "web0008") {
		t.Errorf("%d keys are accepted", len(k.accepted))
	}

	a = ask(t, c, k, http.MethodGet, strings.TrimPrefix(a.Header.Get("Location"), "/console"), nil)
	if !strings.Contains(a.Body, "298 keys accepted. 2 other keys were left alone") {
		t.Errorf("%s", a.Body)
	}

	// The same form once more changes nothing.
	if a = ask(t, c, k, http.MethodPost, "/keys", form); a.Code != http.StatusConflict || len(k.accepted) != 298 {
		t.Errorf("again: %d, %d keys are accepted", a.Code, len(k.accepted))
	}
}

// TestThousandsOfKeys: a confirmation is no larger than the form that salt-api takes; the page says
// how many are left.
func TestThousandsOfKeys(t *testing.T) {
	c := newConsole(t, "")
	long := newKeyring(0)
	for i := range 2000 {
		long.pending[fmt.Sprintf("%04d-%s", i, strings.Repeat("é", 100))] = strings.Repeat("ab:", 31) + "ab"
	}

	for name, k := range map[string]*keyring{"short": newKeyring(2000), "long": long} {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			a := ask(t, c, k, http.MethodGet, "/keys/confirm?all=accept&state=minions_pre", nil)
			took := time.Since(begin)
			form := confirmed(a.Body)
			n := len(form["id"])
			t.Logf("%d keys, %d bytes of page, %d of form, %s", n, len(a.Body), len(form.Encode()), took)
			if n < 200 || n > maxKeys || len(form.Encode()) > 250<<10 ||
				!strings.Contains(a.Body, fmt.Sprintf("%d more are left", 2000-n)) {
				t.Errorf("%d keys, %d bytes", n, len(form.Encode()))
			}

			if a = ask(t, c, k, http.MethodPost, "/keys", form); a.Code != http.StatusSeeOther || len(k.accepted) != n {
				t.Errorf("%d: %d keys are accepted", a.Code, len(k.accepted))
			}
		})
	}
}

// TestAcceptStops: when the master fails in the middle, the page says how many are done.
func TestAcceptStops(t *testing.T) {
	c := newConsole(t, "")
	k := newKeyring(120)
	k.failAt = 2
	form := confirmed(ask(t, c, k, http.MethodGet, "/keys/confirm?all=accept&state=minions_pre", nil).Body)
	a := ask(t, c, k, http.MethodPost, "/keys", form)
	if a.Code != http.StatusBadGateway || !strings.Contains(a.Body, "50 keys are done, then the master stopped") {
		t.Errorf("%d: %s", a.Code, a.Body)
	}
}

// TestKeyFilter: the filter is a part of the name, or a glob for the whole name.
func TestKeyFilter(t *testing.T) {
	ids := []string{"Web1", "web2.example", "db1", hostile}
	for search, want := range map[string]string{
		"":        "Web1 web2.example db1 " + hostile,
		"WEB":     "Web1 web2.example",
		"web*":    "web2.example",
		"*1":      "Web1 db1",
		"[wW]eb?": "Web1",
		"nothing": "",
		"<b":      hostile,
		"[":       "",
	} {
		if got := strings.Join(matchingKeys(ids, search), " "); got != want {
			t.Errorf("%q selects %q", search, got)
		}
	}
}

// TestHostileKeyForms: forms that no page has made change nothing.
func TestHostileKeyForms(t *testing.T) {
	c := newConsole(t, "")
	for name, form := range map[string]url.Values{
		"no fingerprints": {"do": {"accept"}, "state": {"minions_pre"}, "id": {"web0000", "web0001"}},
		"one fingerprint too few": {"do": {"accept"}, "state": {"minions_pre"}, "id": {"web0000", "web0001"},
			"finger": {"00:00"}},
		"all, without a list": {"all": {"accept"}, "state": {"minions_pre"}, "q": {"*"}},
		"all, with a list": {"all": {"accept"}, "state": {"minions_pre"}, "id": {"web0000"},
			"finger": {strings.TrimSuffix(strings.Repeat("00:", 32), ":")}},
		"too many":         {"do": {"accept"}, "state": {"minions_pre"}, "id": slices.Repeat([]string{"web0000"}, maxKeys+1)},
		"a glob":           {"do": {"accept"}, "state": {"minions_pre"}, "id": {"*"}, "finger": {"00"}},
		"an unknown act":   {"do": {"gen"}, "state": {"minions_pre"}, "id": {"web0000"}, "finger": {"00"}},
		"an unknown state": {"do": {"accept"}, "state": {"local"}, "id": {"web0000"}, "finger": {"00"}},
	} {
		k := newKeyring(3)
		form.Set("form", formToken(strings.Repeat("ab", 32)))
		if a := ask(t, c, k, http.MethodPost, "/keys", form); a.Code < 400 || len(k.accepted) > 0 {
			t.Errorf("%s: %d, accepted %v", name, a.Code, k.accepted)
		}
	}
}

// TestNoKeys: a list without keys says what to do next.
func TestNoKeys(t *testing.T) {
	c := newConsole(t, "")
	for path, want := range map[string]string{
		"/keys":                                 "set to the address of this master",
		"/keys?state=minions_pre":               "set to the address of this master",
		"/keys?state=minions_pre&q=web*":        "Show all that are pending",
		"/keys?state=minions_rejected":          "No key is rejected.",
		"/keys?state=minions_denied&page=99999": "No key is denied.",
	} {
		a := ask(t, c, newKeyring(0), http.MethodGet, path, nil)
		if a.Code != http.StatusOK || !strings.Contains(a.Body, want) {
			t.Errorf("%s: %d, without %q", path, a.Code, want)
		}
	}

	if a := ask(t, c, newKeyring(2), http.MethodGet, "/keys?state=minions", nil); !strings.Contains(a.Body,
		"Look at the 2 that wait") {
		t.Errorf("%s", a.Body)
	}
}
