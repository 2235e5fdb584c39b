// The part of the password policy that a page can validate; the service validates again.

const SERVICE_ALONE = new Set(["common"]); // the list stays with the service

const normalized = (text) => text.normalize("NFKC").trim().toLowerCase();

// Return the rules that `password` breaks; `names` are the account's name and e-mail, as known.
export function brokenRules(password, minimum, maximum, names) {
  const characters = [...password].length;
  const rules = new Set();
  if (characters < minimum) rules.add("tooShort");
  if (characters > maximum) rules.add("tooLong");
  if (!password.trim()) rules.add("blank");
  if (names.some((name) => name && normalized(name) === normalized(password))) rules.add("equalsAccountName");
  return rules;
}

// Mark the rules of a list while the password is typed; return a function that validates it.
export function watch(input, list, minimum, maximum, names) {
  const validate = () => {
    const rules = brokenRules(input.value, minimum, maximum, names());
    for (const item of list.children) {
      const breaks = rules.has(item.dataset.rule);
      const open = input.value === "" || SERVICE_ALONE.has(item.dataset.rule);
      item.dataset.state = open ? "open" : breaks ? "broken" : "kept";
    }
    return rules;
  };
  input.addEventListener("input", validate);
  return validate;
}

export const policyErrorOf = (list, rules) => {
  for (const item of list.children) {
    if (rules.has(item.dataset.rule)) return `The password is not good enough: ${item.textContent.trim().toLowerCase()}.`;
  }
  return null;
};
