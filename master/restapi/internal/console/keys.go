package console

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"saltern/master/keys"
	"saltern/master/pattern"
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
	// The master compares each id of a list with each key.
	var match any = value.List(ids)
	if len(ids) > perPage {
		match = "*"
	}
	got, err := v.runCommand(ctx, "wheel", "key.finger", "match", match)
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

type keyRow struct {
	ID, Finger, Address string
	Seen                moment
}

type keysPage struct {
	Tabs    []keyTab
	State   keyState
	Search  string
	Pending int // number of pending keys, whatever the page shows
	Rows    []keyRow
	Actions []string
	pager
}

// matchingKeys returns the ids that a text selects: as a glob for the whole id if the text contains
// one of its special characters, or else as a part of the id, whatever the case. "" selects all.
func matchingKeys(ids []string, search string) []string {
	isGlob := pattern.HasMeta(search)
	part := strings.ToLower(search)
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
		if isGlob {
			return !pattern.Glob(search, id)
		}
		return !strings.Contains(strings.ToLower(id), part)
	})
}

func showKeys(c *Console, ctx context.Context, v *visit) (Answer, error) {
	all, err := keyList(ctx, v)
	if err != nil {
		return Answer{}, err
	}

	d := keysPage{
		Search:  strings.TrimSpace(cutText(v.query.Get("q"), maxName)),
		State:   keyState{"minions_pre", "pending"},
		Pending: len(all["minions_pre"]),
	}

	if d.Pending == 0 {
		d.State = keyState{"minions", "accepted"}
	}

	if f := v.query.Get("state"); stateWord(f) != "" {
		d.State = keyState{f, stateWord(f)}
	}

	for _, s := range keyStates() {
		d.Tabs = append(d.Tabs, keyTab{s, len(all[s.Folder]), s.Folder == d.State.Folder})
	}

	ids := matchingKeys(all[d.State.Folder], d.Search)
	var lo, hi int
	lo, hi, d.pager = pageOf(len(ids), perPage, c.base+"/keys", pageQuery(v.query))
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

// pageQuery returns what the links to other pages of the list repeat of a query: not the notice
// about the last action.
func pageQuery(q url.Values) url.Values {
	out := url.Values{}
	for _, name := range []string{"state", "q", "page"} {
		if q.Has(name) {
			out.Set(name, q.Get(name))
		}
	}
	return out
}

// doneNotice returns a sentence about the last action. Only its numbers come from the query, within
// bounds.
func doneNotice(q url.Values) string {
	n, err := strconv.Atoi(q.Get("n"))
	words := map[string]string{"accept": "accepted", "reject": "rejected", "delete": "deleted"}[q.Get("done")]
	if err != nil || words == "" || n < 1 || n > maxKeys {
		return ""
	}

	notice := countWord(n, "key", "keys") + " " + words + "."
	left, err := strconv.Atoi(q.Get("left"))
	if err == nil && left > 0 && left <= maxKeys {
		notice += " " + countWord(left, "other key was", "other keys were") +
			" left alone: somebody changed them since you looked."
	}

	return notice
}

// chosenKeys holds the keys that the user has chosen in a form.
type chosenKeys struct {
	Action string
	State  keyState
	Search string // text of the list's filter, to which the page returns
	All    bool   // all keys that the filter selects were chosen, not single ones
	Keys   []keyRow
	More   int // number of chosen keys that are too many for one confirmation
	// Cluster means that there are several masters.
	Cluster bool
}

// keyChoice reads action, state and ids from a form. An action in the field all is for all keys of
// the state that the filter q selects; then there are no ids.
func keyChoice(q url.Values) (chosenKeys, []string, error) {
	ch := chosenKeys{
		Action: q.Get("do"),
		State:  keyState{q.Get("state"), stateWord(q.Get("state"))},
		Search: strings.TrimSpace(cutText(q.Get("q"), maxName)),
	}
	ids := q["id"]
	if all := q.Get("all"); all != "" {
		ch.Action, ch.All, ids = all, true, nil
	}

	switch {
	case !slices.Contains(keyActions(ch.State.Folder), ch.Action):
		return ch, nil, &Refusal{http.StatusBadRequest, "That action is not available for keys in this state."}
	case len(ids) == 0 && !ch.All:
		return ch, nil, &Refusal{http.StatusBadRequest, "No key was chosen: go back and mark at least one."}
	case len(ids) > maxKeys:
		return ch, nil, &Refusal{http.StatusBadRequest, fmt.Sprintf("At most %d keys at once.", maxKeys)}
	}

	for _, id := range ids {
		if keys.ValidID(id) != nil {
			return ch, nil, &Refusal{http.StatusBadRequest, "That is not the id of a minion."}
		}
	}

	return ch, ids, nil
}

// confirmKeys shows the fingerprints of the chosen keys and asks for confirmation. The form that it
// shows contains each key with its fingerprint: a key that comes later is not confirmed, even if the
// filter selects it.
func confirmKeys(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, ids, err := keyChoice(v.query)
	if err != nil {
		return Answer{}, err
	}

	if d.All {
		all, err := keyList(ctx, v)
		if err != nil {
			return Answer{}, err
		}
		ids = matchingKeys(all[d.State.Folder], d.Search)
	}

	f, err := fingerprints(ctx, v, d.State.Folder, ids)
	if err != nil {
		return Answer{}, err
	}

	d.Cluster = c.cfg.Cluster
	heard := minionsByID(ctx, v)
	room := maxKeyBytes
	for i, id := range ids {
		finger := f.Str(id)
		if finger == "" {
			continue
		}

		room -= len(url.Values{"id": {id}, "finger": {finger}}.Encode()) + 1
		if room < 0 || len(d.Keys) == maxKeys {
			d.More = len(ids) - i
			break
		}

		d.Keys = append(d.Keys, keyRow{id, finger, heard[id].Address, heard[id].Seen})
	}

	if len(d.Keys) == 0 {
		return Answer{}, &Refusal{http.StatusConflict,
			"These keys are not " + d.State.Word + " any more: somebody else was faster."}
	}

	return c.render(v, "confirm", http.StatusOK,
		page{Title: capital(d.Action) + " keys", Data: d})
}

// changeKeys performs the confirmed action on exactly the keys whose fingerprints the user has
// seen. It leaves alone a key that has another fingerprint or state now.
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
	if ch.All || len(shown) != len(ids) {
		return Answer{}, &Refusal{http.StatusConflict,
			"The form does not say which fingerprints were shown. Nothing was done. Look at the keys again."}
	}

	// Little time passes between the check of a key and its acceptance.
	step := len(ids)
	if ch.Action == "accept" {
		step = perPage
	}

	done := 0
	for at := 0; at < len(ids); at += step {
		end := min(at+step, len(ids))
		n, err := ch.changePart(ctx, v, ids[at:end], shown[at:end])
		done += n
		if r, ok := errors.AsType[*Refusal](err); ok && done > 0 {
			return Answer{}, &Refusal{r.Code, fmt.Sprintf("%s done, then the master stopped: %s Look at the keys again.",
				countWord(done, "key is", "keys are"), r.Text)}
		}
		if err != nil {
			return Answer{}, err
		}
	}

	if done == 0 && len(ids) == 1 {
		return Answer{}, &Refusal{http.StatusConflict, "The key of " + briefName(ids[0]) +
			" is not the one that was shown: it was changed or treated meanwhile. Nothing was done. Look at the keys again."}
	}
	if done == 0 {
		return Answer{}, &Refusal{http.StatusConflict,
			"All these keys were changed or treated since they were shown. Nothing was done. Look at the keys again."}
	}

	return c.redirect("/keys", url.Values{
		"state": {ch.State.Folder},
		"q":     {ch.Search},
		"done":  {ch.Action},
		"n":     {strconv.Itoa(done)},
		"left":  {strconv.Itoa(len(ids) - done)},
	}), nil
}

// changePart performs the action on those of the keys that still have the fingerprints shown, and
// returns their number.
func (ch *chosenKeys) changePart(ctx context.Context, v *visit, ids, shown []string) (int, error) {
	now, err := fingerprints(ctx, v, ch.State.Folder, ids)
	if err != nil {
		return 0, err
	}

	var same []string
	for i, id := range ids {
		if now.Str(id) != "" && now.Str(id) == shown[i] {
			same = append(same, id)
		}
	}

	if len(same) == 0 {
		return 0, nil
	}

	kv := []any{"match", value.NewMap(ch.State.Folder, value.List(same))}
	switch {
	case ch.Action == "accept" && ch.State.Folder == "minions_rejected":
		kv = append(kv, "include_rejected", true)
	case ch.Action == "reject" && ch.State.Folder == "minions":
		kv = append(kv, "include_accepted", true)
	}

	got, err := v.runCommand(ctx, "wheel", "key."+ch.Action+"_dict", kv...)
	if err != nil {
		return 0, err
	}

	m, _ := got.(*value.Map)
	if m.Map("data").Value("success") != true {
		return 0, &Refusal{http.StatusBadGateway,
			"The master could not do that: " + briefName(value.StrMax(wheelReturn(got), maxName))}
	}

	return len(same), nil
}

// octetGroups returns a fingerprint in parts of eight bytes, between which a browser may break the
// line.
func octetGroups(finger string) (groups []string) {
	for part := range slices.Chunk(strings.SplitAfter(finger, ":"), 8) {
		groups = append(groups, strings.Join(part, ""))
	}
	return groups
}

// capital returns a word of the console with a capital letter at its start.
func capital(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
