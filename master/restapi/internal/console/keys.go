package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"saltern/master/keys"
	"saltern/master/value"
)

// keyState is a state of keys: Salt's name of the state's folder, and the state's name for users.
type keyState struct{ Folder, Word string }

func keyStates() []keyState {
	return []keyState{
		{"minions_pre", "pending"},
		{"minions", "accepted"},
		{"minions_rejected", "rejected"},
		{"minions_denied", "denied"},
	}
}

func stateWord(folder string) string {
	for _, s := range keyStates() {
		if s.Folder == folder {
			return s.Word
		}
	}
	return ""
}

// keyActions returns the actions that are possible for keys in a state.
func keyActions(folder string) []string {
	switch folder {
	case "minions_pre":
		return []string{"accept", "reject", "delete"}
	case "minions":
		return []string{"reject", "delete"}
	case "minions_rejected":
		return []string{"accept", "delete"}
	case "minions_denied":
		return []string{"delete"}
	}
	return nil
}

// keyList returns the ids of all keys, by the folder of their state.
func keyList(ctx context.Context, v *visit) (map[string][]string, error) {
	got, err := v.runCommand(ctx, "wheel", "key.list_all")
	if err != nil {
		return nil, err
	}
	m, _ := wheelReturn(got).(*value.Map)
	out := map[string][]string{}
	for _, s := range keyStates() {
		out[s.Folder] = m.Texts(s.Folder)
	}
	return out, nil
}

// wheelReturn returns the result in the answer of a wheel function.
func wheelReturn(got any) any {
	m, _ := got.(*value.Map)
	return m.Map("data").Value("return")
}

// fingerprints returns the fingerprints of the keys of some ids in one state, by id.
func fingerprints(ctx context.Context, v *visit, folder string, ids []string) (*value.Map, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	got, err := v.runCommand(ctx, "wheel", "key.finger", "match", value.List(ids))
	if err != nil {
		return nil, err
	}
	m, _ := wheelReturn(got).(*value.Map)
	return m.Map(folder), nil
}

type keyTab struct {
	keyState
	N    int
	Here bool
}

type keyRow struct{ ID, Finger, Address, Seen string }

type keysPage struct {
	Tabs    []keyTab
	State   keyState
	Search  string
	Rows    []keyRow
	Actions []string
	pager
}

func showKeys(c *Console, ctx context.Context, v *visit) (Answer, error) {
	all, err := keyList(ctx, v)
	if err != nil {
		return Answer{}, err
	}

	d := keysPage{Search: cutText(v.query.Get("q"), maxName), State: keyState{"minions_pre", "pending"}}
	if len(all["minions_pre"]) == 0 {
		d.State = keyState{"minions", "accepted"}
	}

	if f := v.query.Get("state"); stateWord(f) != "" {
		d.State = keyState{f, stateWord(f)}
	}

	for _, s := range keyStates() {
		d.Tabs = append(d.Tabs, keyTab{s, len(all[s.Folder]), s.Folder == d.State.Folder})
	}

	ids := all[d.State.Folder]
	if d.Search != "" {
		ids = slices.DeleteFunc(slices.Clone(ids),
			func(id string) bool { return !strings.Contains(strings.ToLower(id), strings.ToLower(d.Search)) })
	}

	var lo, hi int
	lo, hi, d.pager = pageOf(len(ids), perPage, c.base+"/keys", v.query)
	ids = ids[lo:hi]
	f, err := fingerprints(ctx, v, d.State.Folder, ids)
	if err != nil {
		return Answer{}, err
	}

	heard := minionsByID(ctx, v)
	for _, id := range ids {
		d.Rows = append(d.Rows, keyRow{id, briefName(f.Str(id)), heard[id].Address, heard[id].Seen})
	}

	for _, a := range keyActions(d.State.Folder) {
		if v.mayCall("wheel", "key."+a+"_dict") {
			d.Actions = append(d.Actions, a)
		}
	}

	return c.render(v, "keys", http.StatusOK, page{Title: "Keys", Data: d, Notice: doneNotice(v.query)})
}

// doneNotice returns a sentence about the last action. Only its number comes from the query, within
// bounds.
func doneNotice(q url.Values) string {
	n, err := strconv.Atoi(q.Get("n"))
	words := map[string]string{"accept": "accepted", "reject": "rejected", "delete": "deleted"}[q.Get("done")]
	if err != nil || words == "" || n < 1 || n > perPage {
		return ""
	}
	return countWord(n, "key", "keys") + " " + words + "."
}

// chosenKeys holds the keys that the user has chosen in a form.
type chosenKeys struct {
	Action string
	State  keyState
	Keys   []keyRow
}

// keyChoice reads action, state and ids from a form.
func keyChoice(q url.Values) (chosenKeys, []string, error) {
	ch := chosenKeys{Action: q.Get("do"), State: keyState{q.Get("state"), stateWord(q.Get("state"))}}
	ids := q["id"]
	switch {
	case !slices.Contains(keyActions(ch.State.Folder), ch.Action):
		return ch, nil, &Refusal{http.StatusBadRequest, "Keys in that state cannot be treated so."}
	case len(ids) == 0:
		return ch, nil, &Refusal{http.StatusBadRequest, "No key was chosen: go back and mark at least one."}
	case len(ids) > perPage:
		return ch, nil, &Refusal{http.StatusBadRequest, fmt.Sprintf("At most %d keys at once.", perPage)}
	}

	for _, id := range ids {
		if keys.ValidID(id) != nil {
			return ch, nil, &Refusal{http.StatusBadRequest, "That is not the id of a minion."}
		}
	}

	return ch, ids, nil
}

// confirmKeys shows the fingerprints of the chosen keys and asks for confirmation.
func confirmKeys(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, ids, err := keyChoice(v.query)
	if err != nil {
		return Answer{}, err
	}

	f, err := fingerprints(ctx, v, d.State.Folder, ids)
	if err != nil {
		return Answer{}, err
	}

	heard := minionsByID(ctx, v)
	for _, id := range ids {
		if finger := f.Str(id); finger != "" {
			d.Keys = append(d.Keys, keyRow{id, finger, heard[id].Address, heard[id].Seen})
		}
	}

	if len(d.Keys) == 0 {
		return Answer{}, &Refusal{http.StatusConflict,
			"These keys are not " + d.State.Word + " any more: somebody else was faster."}
	}

	return c.render(v, "confirm", http.StatusOK,
		page{Title: strings.ToUpper(d.Action[:1]) + d.Action[1:] + " keys", Data: d})
}

// changeKeys performs the confirmed action on exactly the keys whose fingerprints the user has
// seen.
func changeKeys(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	ch, ids, err := keyChoice(form)
	if err != nil {
		return Answer{}, err
	}

	shown := form["finger"]
	f, err := fingerprints(ctx, v, ch.State.Folder, ids)
	if err != nil {
		return Answer{}, err
	}

	for i, id := range ids {
		if i >= len(shown) || f.Str(id) == "" || f.Str(id) != shown[i] {
			return Answer{}, &Refusal{http.StatusConflict,
				"The key of " + briefName(id) +
					" is not the one that was shown: it was changed or treated meanwhile. Nothing was done. Look at the keys again."}
		}
	}

	kv := []any{"match", value.NewMap(ch.State.Folder, value.List(ids))}
	switch {
	case ch.Action == "accept" && ch.State.Folder == "minions_rejected":
		kv = append(kv, "include_rejected", true)
	case ch.Action == "reject" && ch.State.Folder == "minions":
		kv = append(kv, "include_accepted", true)
	}

	got, err := v.runCommand(ctx, "wheel", "key."+ch.Action+"_dict", kv...)
	if err != nil {
		return Answer{}, err
	}

	m, _ := got.(*value.Map)
	if m.Map("data").Value("success") != true {
		return Answer{}, &Refusal{http.StatusBadGateway,
			"The master could not do that: " + briefName(value.StrMax(wheelReturn(got), maxName))}
	}

	return c.redirect("/keys",
		url.Values{"state": {ch.State.Folder}, "done": {ch.Action}, "n": {strconv.Itoa(len(ids))}}), nil
}
