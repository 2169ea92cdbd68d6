// Package git keeps copies of git repositories for file server and pillars, and
// reads what is in them.
//
// The program git fetches, so that ssh, known_hosts, certificates, proxies and
// authorities are those of the host; a long-lived `git cat-file --batch` reads
// objects (docs/decisions/0012-git.md). A [Store] has one bare [Repository] for
// each remote, which whoever names the same remote shares. Each fetch that finds
// something new makes a [Snapshot], which never changes, and puts it in the place
// of the last one in one step. A fetch that fails leaves the last one in service.
//
// What a remote sends is hostile: the number of refs, the size of the repository,
// of trees, paths and files are bounded ([Limits]), names that could lead out of a
// directory do not exist, links are never followed by the disk, no hook, filter or
// submodule is ever run, and no protocol but that of the remote's URL is spoken.
// What comes from minions (names of environments and files) is only ever compared
// with names of refs and trees.
//
// One process owns the directory of a Store. There are no locks: what a killed
// fetch left behind is removed at the start and before each fetch. All methods may
// be called concurrently.
package git
