"""Whether two neighbours are set up for the same fit and, if not, what differs, in words for both sides.

Both ends ask the same questions of the same two hellos, so they come to the same answer.
"""

from itertools import zip_longest

from desmr_node.protocol.messages import Hello, Schema

#: More differences than this are counted, not listed.
_LISTED = 3


def spoken(own: Hello, theirs: Hello) -> int | None:
    """The wire version of an edge, the newest that both ends speak; None if there is none."""
    version = min(own.version, theirs.version)
    return version if version >= max(own.oldest_version, theirs.oldest_version) else None


def differences(own: Hello, theirs: Hello, peer: str) -> list[str]:
    """One sentence for everything that keeps `own` and `theirs` apart; empty if they fit together."""
    if theirs.node != peer:
        return [f"{peer} calls itself {theirs.node!r}: its certificate and its node id must be the same"]
    if own.network != theirs.network:
        return [f"the network is {own.network!r} at {own.node} and {theirs.network!r} at {peer}: correct one"]
    if spoken(own, theirs) is None:
        return [
            f"{own.node} speaks wire versions {own.oldest_version} to {own.version} and {peer} "
            f"{theirs.oldest_version} to {theirs.version}: upgrade "
            f"{own.node if own.version < theirs.version else peer}"
        ]
    if own.method != theirs.method:
        return [
            f"{own.node} computes by method {own.method} and {peer} by method {theirs.method}: a fit needs "
            f"the same at every member; upgrade {own.node if own.method < theirs.method else peer}"
        ]
    found = _schema(own.schema, theirs.schema, own.node, peer)
    found += _settings(own, theirs)
    if len(found) > _LISTED:
        found = [*found[:_LISTED], f"and {len(found) - _LISTED} more differences"]
    return found


def _schema(own: Schema, theirs: Schema, here: str, there: str) -> list[str]:
    found = []
    if own.response != theirs.response:
        found.append(f"the response is {own.response!r} at {here} and {theirs.response!r} at {there}")
    if len(own.features) != len(theirs.features):
        extra = sorted(set(own.features) ^ set(theirs.features))
        named = f" ({', '.join(map(repr, extra[:_LISTED]))} at one only)" if extra else ""
        found.append(f"{here} has {len(own.features)} features and {there} {len(theirs.features)}{named}")
    elif own.features != theirs.features and set(own.features) == set(theirs.features):
        at = next(
            i for i, pair in enumerate(zip(own.features, theirs.features, strict=True)) if len(set(pair)) > 1
        )
        found.append(
            f"the features are in another order: feature {at + 1} is {own.features[at]!r} at {here} and "
            f"{theirs.features[at]!r} at {there}; list them in [data] features"
        )
    else:
        found += [
            f"feature {i + 1} is {mine!r} at {here} and {yours!r} at {there}"
            for i, (mine, yours) in enumerate(zip_longest(own.features, theirs.features))
            if mine != yours
        ]
    return found


def _settings(own: Hello, theirs: Hello) -> list[str]:
    """Values that differ; and what only the newer end knows, unless it leaves that at its default."""
    here, there = own.settings, theirs.settings
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    newer, older = (own, theirs) if own.version > theirs.version else (theirs, own)
    found = []
    for name in names:
        if own.version != theirs.version and name not in older.settings:
            found += _unknown(name, newer, older.node)
        else:
            found.append(
                f"[fit] {name} is {here.get(name, 'unknown')} at {own.node} and "
                f"{there.get(name, 'unknown')} at {theirs.node}"
            )
    return found


def _unknown(name: str, newer: Hello, older: str) -> list[str]:
    """An older release computes as if the setting had its default: it has to have it, then."""
    value, default = newer.settings[name], newer.defaults.get(name)
    if value == default:
        return []
    remedy = f"upgrade {older}" + ("" if default is None else f", or set the default {default}")
    return [
        f"[fit] {name} is {value} at {newer.node}, and {older} runs an older release that does not know it: "
        f"{remedy}"
    ]
