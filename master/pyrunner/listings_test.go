package pyrunner

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// lists is a runner that changes a folder of modules at random. After each change it compares what
// a new loader has found with Salt's own list of the folders. It returns the differences, and how
// many of the loaders did not list the folders themselves.
const lists = `
import os
import random
import shutil
import time
import salt.loader
import salt.loader.lazy

def compare(folder, rounds, seed):
    draw = random.Random(seed)
    refresh = salt.loader.lazy.LazyLoader._refresh_file_mapping
    cells = dict(zip(refresh.__code__.co_freevars, (cell.cell_contents for cell in refresh.__closure__)))
    plain, listings = cells["listed"], cells["listings"]
    type(listings).folders.__globals__["SETTLED"] = -1e9  # lists of folders that were just changed count, too
    asked, listed, wrong = 0, [], []
    fill = listings.fill
    listings.fill = lambda loader, _: fill(loader, lambda it: (listed.append(1), plain(it)))
    for number in range(rounds):
        if draw.random() < 0.5:
            change(draw, folder)
            time.sleep(0.02)  # the resolution of times of files
        before = len(listed)
        loader = salt.loader.runner(__opts__)
        asked += len(listed) == before
        got = (loader.file_mapping, loader.suffix_map, loader.suffix_order)
        plain(loader)
        if got != (loader.file_mapping, loader.suffix_map, loader.suffix_order):
            wrong.append([number, sorted(os.listdir(folder)), repr(got)])
    return [wrong, asked]

def change(draw, folder):
    path = os.path.join(folder, draw.choice(["a", "b", "c", "_d"]) + draw.choice([".py", ".pyc", "", ".so", ".txt"]))
    if os.path.isdir(path) and draw.random() < 0.5:
        inner = os.path.join(path, "__init__.py")
        if os.path.exists(inner):
            os.remove(inner)
        else:
            open(inner, "w").close()
    elif os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)
    elif path.rsplit("/", 1)[1].count("."):
        open(path, "w").close()
    else:
        os.mkdir(path)
`

// TestListsOfModulesAreNeverOld: a loader that takes over what an earlier one of the same process has
// found in the folders finds what it would have found itself.
func TestListsOfModulesAreNeverOld(t *testing.T) {
	c, dir := setUp(t, false)
	put(t, filepath.Join(dir, "own/lists.py"), lists)
	folder := filepath.Join(dir, "ext/runners")
	seed := rand.Int64()
	v, err := c.Call(t.Context(), "lists.compare", []any{folder, int64(150), seed}, nil)
	if err != nil {
		t.Fatal(err)
	}

	result := v.([]any)
	if wrong := result[0].([]any); len(wrong) > 0 {
		t.Errorf("seed %d: %d of 150 differ, the first: %s", seed, len(wrong), fmt.Sprint(wrong[0]))
	}
	if taken := result[1].(int64); taken < 30 {
		t.Errorf("seed %d: only %d of 150 loaders took over a list", seed, taken)
	}
}
