// Package memoryd is a client of memoryd, a daemon that gives AI agents long-term memory.
//
//	client, err := memoryd.Connect()
//	if err != nil {
//		return err
//	}
//	defer client.Close()
//	found, err := client.Search(ctx, &memorydv1.MemorySearchRequest{Query: "who owns the cache?"})
//
// [Connect] finds the daemon, its token and its certificates in the same places as the memoryd command, unless options
// specify them. The methods of [Client] accept and return the messages of the API, which are in the package memorydv1.
// A call whose status is not OK returns an [*Error].
//
// Every call except Sync and Watch has a deadline: that of its context; or else that of [WithTimeout]; or else the
// default deadline of the method. A call that fails with UNAVAILABLE is retried for about a second, within its
// deadline.
package memoryd
